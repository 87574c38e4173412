"""The verdicts: fail, unknown, not proven, not applicable, pass; judged per subject."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.audit.assertion import Assertion
from gpuctl.audit.judge import Judgement, Verdict, judge
from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Answer
from gpuctl.facts.state import Inapplicable, Reason, Unknown
from tests.audit.helpers import a_pod_can_be_made, attempts, pods_are_good, pods_have_a_node
from tests.facts.views import node, pod
from tests.memory import A_MOMENT, MemoryReader

FORBIDDEN = Unknown(Reason.FORBIDDEN, "no")


def judged(assertion: Assertion, *items: dict[str, object], **reader: Any) -> Judgement:
    return judge(assertion, gather(assertion.needs, MemoryReader(items, **reader), {}))


def test_it_passes_if_it_had_subjects_and_all_held() -> None:
    judgement = judged(pods_are_good, pod("a"), pod("b"))
    assert (judgement.verdict, judgement.looked) == (Verdict.PASS, 2)


def test_without_subjects_there_is_nothing_to_pass() -> None:
    assert judged(pods_are_good).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("name", "verdict"), [("bad", Verdict.FAIL), ("poor", Verdict.FAIL), ("note", Verdict.PASS)]
)
def test_errors_and_warnings_fail_and_information_rides_on_a_pass(name: str, verdict: Verdict) -> None:
    judgement = judged(pods_are_good, pod(name), pod("a"))
    assert judgement.verdict is verdict
    assert len(judgement.findings) == 1


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (FORBIDDEN, Verdict.UNKNOWN),
        (Unknown(Reason.NOT_ASKED), Verdict.UNKNOWN),
        (Inapplicable("not served"), Verdict.NOT_APPLICABLE),
    ],
)
def test_unreadable_subjects(state: Unknown | Inapplicable, verdict: Verdict) -> None:
    judgement = judged(pods_are_good, missing={"pods": state})
    assert judgement.verdict is verdict
    assert judgement.reason


def test_one_malformed_object_is_one_gap_and_hides_no_finding() -> None:
    malformed = pod("c") | {"spec": 7}
    judgement = judged(pods_are_good, pod("a"), malformed)
    assert judgement.verdict is Verdict.UNKNOWN
    assert [str(gap.subject) for gap in judgement.gaps] == ["Pod default/c"]
    assert judged(pods_are_good, pod("bad"), malformed).verdict is Verdict.FAIL


def test_findings_made_before_a_gap_stay() -> None:
    judgement = judged(pods_are_good, pod("bad-crash"), pod("a"))
    assert judgement.verdict is Verdict.FAIL
    assert len(judgement.findings) == 1
    assert [gap.state.reason for gap in judgement.gaps] == [Reason.INTERNAL]


def test_what_is_refuted_needs_no_more_knowledge() -> None:
    nameless: dict[str, object] = {"apiVersion": "v1", "kind": "Node", "metadata": {}}
    assert judged(pods_have_a_node, pod("a"), node("default"), nameless).verdict is Verdict.PASS
    assert judged(pods_have_a_node, pod("a"), node("other"), nameless).verdict is Verdict.UNKNOWN
    assert judged(pods_have_a_node, pod("a"), node("other")).verdict is Verdict.FAIL


def test_a_proof_not_asked_for_is_not_proven() -> None:
    assert judged(a_pod_can_be_made).verdict is Verdict.NOT_PROVEN


@pytest.mark.parametrize(("status", "verdict"), [(201, Verdict.PASS), (500, Verdict.FAIL)])
def test_a_proof_that_was_made_is_judged(status: int, verdict: Verdict) -> None:
    (attempt,) = gather([attempts], MemoryReader([]), {})[attempts]
    answer = Answer(at=A_MOMENT, seconds=0.1, status=status, body={})
    assert judged(a_pod_can_be_made, answers={attempt: answer}).verdict is verdict


def test_a_proof_that_was_tried_and_failed_is_unknown() -> None:
    class TimesOut(MemoryReader):
        def dry_run(self, attempts: Any) -> Any:
            return Unknown(Reason.TIMEOUT)

    facts = gather(a_pod_can_be_made.needs, TimesOut([]), {})
    assert judge(a_pod_can_be_made, facts).verdict is Verdict.UNKNOWN
