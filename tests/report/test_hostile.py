"""Whatever stands in a cluster, no format's syntax breaks, and nothing in it becomes markup."""

from __future__ import annotations

import io
import re
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from gpuctl.audit.compare import Difference, Turn
from gpuctl.audit.report import AuditReport, FindingItem, ObjectRef
from gpuctl.cli.output import rendered
from gpuctl.report.difference import draw_difference
from gpuctl.report.plain import plain
from gpuctl.report.text import canvas
from tests.report.golden import short
from tests.report.readers import READERS, commands, expected, samples, sarif_run, suite, tables
from tests.report.reports import BROKEN, DECIDED, HOSTILE, STRANGE, SYNTAX, UNPROVEN

SIGNS = st.text(
    st.sampled_from("|\\`:[](){}<>&%\"'#*_~-!@$^=+.,;/0aAwx \t\r\n\x00\x1b\u202e\u2028\ufffe\ud800é√")
)
TEXTS = st.text(st.characters(exclude_categories=())) | SIGNS
KEPT = {"verdict", "severity", "kind", "fingerprint", "apiVersion", "cause"}


def filled(value: Any, text: str) -> Any:
    """A report whose every free text is `text`."""
    if isinstance(value, dict):
        return {key: each if key in KEPT else filled(each, text) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [filled(each, text) for each in value]
    return text if isinstance(value, str) and not _is_time(value) else value


def _is_time(value: str) -> bool:
    return bool(re.match(r"\d{4}-\d\d-\d\d", value))


def hostile(report: AuditReport, text: str) -> AuditReport:
    return msgspec.convert(filled(msgspec.to_builtins(report), text), AuditReport)


@pytest.mark.parametrize("report", [BROKEN, DECIDED, UNPROVEN])
@settings(deadline=None, max_examples=30)
@given(text=TEXTS)
def test_no_text_breaks_a_format(report: AuditReport, text: str) -> None:
    strange = hostile(report, text)
    for name, read in READERS.items():
        output = rendered(strange, name)
        output.encode()
        assert not _hidden(output)
        if name != "prometheus":  # there, assertions of one name are one series
            assert read(output) == expected(strange), name
    assert len(samples(rendered(strange, "prometheus"))) == 10
    assert _shape(rendered(strange, "markdown")) == _shape(rendered(report, "markdown"))
    assert len(short(strange).split("\n")) == len(short(report).split("\n"))
    assert len(commands(rendered(strange, "github"))) == len(commands(rendered(report, "github")))


def _shape(page: str) -> list[list[int]]:
    return [[len(row) for row in table] for table in tables(page)]


def _hidden(text: str) -> set[str]:
    """Characters that do not show as themselves; the ends of lines are ours."""
    return {
        each for each in text if each != "\n" and unicodedata.category(each) in {"Cc", "Cf", "Cs", "Co", "Cn"}
    }


@given(text=TEXTS)
@settings(deadline=None, max_examples=30)
def test_text_arrives_as_it_shows(text: str) -> None:
    """Through every parser, a message is what `plain` makes of it."""
    strange, shown = hostile(BROKEN, text), plain(text)
    assert tables(rendered(strange, "markdown"))[1][1][4].strip() == shown.strip()
    assert commands(rendered(strange, "github"))[0][2].split("\n")[0] == shown
    assert next(iter(suite(rendered(strange, "junit")))).name == shown
    assert samples(rendered(strange, "prometheus"))["gpuctl_check_verdict"][0][0]["check"] == shown
    message = sarif_run(rendered(strange, "sarif"))["results"][0]["message"]["text"]
    assert message.replace("{{", "{").replace("}}", "}").replace("] (", "](") == (
        shown.replace("] (", "](") or "-"
    )


def test_a_name_stays_one_cell_one_line_one_series() -> None:
    findings = tables(rendered(STRANGE, "markdown"))[1]
    assert [len(row) for row in findings] == [5, 5]
    assert plain(HOSTILE) in findings[1][2]
    assert plain(SYNTAX) in findings[1][2]
    assert [title for _level, title, _text in commands(rendered(STRANGE, "github"))] == [
        "TST001 pods-test",
        "gpuctl check",
    ]


def test_characters_that_xml_forbids_are_written_out() -> None:
    every = "".join(
        chr(point) for point in [*range(0x20), *range(0x7F, 0xA0), 0xD800, 0xDFFF, 0xFFFE, 0xFFFF]
    )
    text = rendered(hostile(BROKEN, every), "junit")
    assert text.isascii()
    assert next(iter(suite(text))).name == plain(every)


def test_braces_and_links_are_no_placeholders_in_sarif() -> None:
    messages = [result["message"]["text"] for result in sarif_run(rendered(STRANGE, "sarif"))["results"]]
    assert any('"{{0}}" [l] (u://v)' in message for message in messages)


def test_a_difference_shows_what_stands_in_reports_as_text() -> None:
    """Reports are files that anybody may have written."""
    turn = Turn("a/b", "it holds", "pass", "\x1b[2Jfail\n::error::x")
    found = FindingItem(
        code="\x1b[31mX",
        severity="error",
        object=ObjectRef(api_version="v1", kind="Pod", namespace="", name="p"),
        message="m",
        evidence=(),
        look="",
        remedy="",
        runbook=None,
        fingerprint="f",
    )
    page = io.StringIO()
    between = Difference(appeared=(found,), gone=(), standing=0, turns=(turn,), incomplete=False)
    draw_difference(between, canvas(Console(file=page, force_terminal=False)))
    shown = page.getvalue()
    assert "\x1b" not in shown
    assert "\n::error" not in shown
