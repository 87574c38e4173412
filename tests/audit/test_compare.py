"""Before and after: what appeared, what is gone, and what is only no longer known."""

from __future__ import annotations

from gpuctl.audit.compare import difference
from tests.audit.helpers import pods_have_a_node
from tests.facts.views import node, pod
from tests.report.reports import FORBIDDEN, report

HOME = node("default")
BAD, OTHER, POOR, GOOD = pod("bad-1"), pod("bad-2"), pod("poor"), pod("a")


def test_nothing_changed() -> None:
    same = difference(report(BAD, HOME), report(BAD, HOME))
    assert (same.appeared, same.gone, same.standing, same.turns, same.exit_code) == ((), (), 1, (), 0)


def test_what_appeared_fails() -> None:
    found = difference(report(BAD, HOME), report(BAD, OTHER, HOME))
    assert [each.object.name for each in found.appeared] == ["bad-2"]
    assert (found.standing, found.exit_code) == (1, 1)


def test_what_is_gone_does_not() -> None:
    found = difference(report(BAD, GOOD, HOME), report(GOOD, HOME))
    assert [each.object.name for each in found.gone] == ["bad-1"]
    assert [(turn.assertion, turn.before, turn.after) for turn in found.turns] == [
        ("pods-test/pods-are-good", "fail", "pass")
    ]
    assert found.exit_code == 0


def test_information_may_appear() -> None:
    assert difference(report(GOOD, HOME), report(GOOD, pod("note"), HOME)).exit_code == 0


def test_what_is_not_known_is_not_gone() -> None:
    malformed = pod("bad-1") | {"spec": 7}
    found = difference(report(BAD, GOOD, HOME), report(malformed, GOOD, HOME))
    assert found.gone == ()
    assert (found.incomplete, found.exit_code) == (True, 3)


def test_what_appeared_outweighs_what_is_not_known() -> None:
    assert difference(report(GOOD, HOME), report(BAD, missing=FORBIDDEN)).exit_code == 1


def test_what_was_not_judged_any_more_is_no_good_news() -> None:
    before, after = report(BAD, HOME), report(BAD, HOME, assertions=(pods_have_a_node,))
    found = difference(before, after)
    assert (found.gone, found.incomplete, found.exit_code) == ((), True, 3)
