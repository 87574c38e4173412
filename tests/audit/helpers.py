"""A check about pods, for tests of everything that is common to checks."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Assertion, Strength, every, holds
from gpuctl.audit.check import Check
from gpuctl.audit.finding import Code, Evidence, Finding, Severity
from gpuctl.audit.report import Source
from gpuctl.facts.fact import DryRun, Objects, given
from gpuctl.facts.kinds import Answer, Attempt, Ref
from gpuctl.facts.state import Each
from tests.facts.views import NodeView, PodView

BAD = Code("TST001", "a pod is bad", Severity.ERROR)
POOR = Code("TST002", "a pod is poor", Severity.WARNING)
NOTE = Code("TST003", "a pod is noted", Severity.INFO)
_CODES = {"bad": BAD, "poor": POOR, "note": NOTE}


def finding(code: Code, ref: Ref, *, mark: str = "", cause: str = "") -> Finding:
    return Finding(
        code,
        ref,
        f"{ref} is {code.title}",
        (Evidence(ref, "{.spec}", "seen"),),
        f"kubectl get {ref.kubectl}",
        "mend it",
        mark,
        cause,
    )


@every(Objects(PodView), "every pod is good", given())
def pods_are_good(pod: PodView) -> Iterator[Finding]:
    """A pod's name tells what is found of it."""
    for word, code in _CODES.items():
        if word in pod.metadata.name:
            yield finding(code, pod.ref, cause=word)
    if "crash" in pod.metadata.name:
        raise ZeroDivisionError("bug")


@every(Objects(PodView), "every pod has a node", given(Objects(NodeView)))
def pods_have_a_node(pod: PodView, nodes: Each[Ref, NodeView]) -> Iterator[Finding]:
    if not any(node.metadata.name == pod.metadata.namespace for node in nodes):
        yield finding(BAD, pod.ref)


@given()
def attempts() -> tuple[Attempt, ...]:
    return (Attempt(PodView.of, "default", {}),)


@holds("a pod can be made", given(DryRun(attempts, ())), Strength.PROOF)
def a_pod_can_be_made(answers: Each[Attempt, Answer]) -> Iterator[Finding]:
    for attempt, answer in answers.items():
        if answer.status != 201:
            yield finding(BAD, Ref(attempt.kind, "tried", attempt.namespace))


def check(*assertions: Assertion) -> Check:
    return Check("pods-test", "Pods in a test", "tests.audit", tuple(_CODES.values()), assertions)


def source() -> Source:
    return Source(kind="snapshot", name="memory")
