"""Label selectors as people write them; those of objects are in tests/kueue/test_rules.py."""

from __future__ import annotations

import pytest

from gpuctl.facts.selectors import parse, selects


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("a=1", True),
        ("a==1,b", True),
        ("a!=1", False),
        ("c!=1", True),
        ("a in (1, 2)", True),
        ("a notin (1,2)", False),
        ("c notin (1)", True),
        ("!a", False),
        ("!c, b", True),
        ("a in (2),b", False),
    ],
)
def test_a_selector_that_is_written_down(text: str, matches: bool) -> None:
    assert selects(parse(text), {"a": "1", "b": ""}) is matches


def test_a_wrong_selector_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a label selector"):
        parse("a b")
