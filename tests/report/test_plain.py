"""Strings that came from a cluster show what they are and do nothing else."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.report.plain import plain


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("gpu-07", "gpu-07"),
        ("größer", "größer"),
        ("\x1b[2J\x1b[31mall green", "\\x1b[2J\\x1b[31mall green"),
        ("one\ntwo\r\tthree", "one\\ntwo\\r\\tthree"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\u2066isolate\u2069", "\\u2066isolate\\u2069"),
        ("nul\x00", "nul\\x00"),
        ("\x9b31m", "\\x9b31m"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("\ud800", "\\ud800"),
        ("[red]markup[/red]", "[red]markup[/red]"),
    ],
)
def test_hidden_characters_are_written_as_escapes(hostile: str, shown: str) -> None:
    assert plain(hostile) == shown


@given(st.text(st.characters(categories=["C", "Z", "L", "S"])))
def test_nothing_hidden_is_left(text: str) -> None:
    shown = plain(text)
    assert not any(unicodedata.category(each).startswith("C") for each in shown)
    assert "\u2028" not in shown
    assert plain(shown) == shown
