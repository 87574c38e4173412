"""A bad API server: what a run says of it, and in what time. `make test-api-faults` tries everything."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from .api_faults.matrix import Matrix, Result, matrices
from .api_faults.table import COMMAND, PAGE, page
from .api_faults.trial import Trial
from .api_faults.troubles import TROUBLES
from .bed import Bed
from .bed.faultproxy import (
    Answer,
    Dropped,
    FaultProxy,
    Forbidden,
    GatewayPage,
    Raw,
    Slow,
    Stalled,
    Unauthorized,
)
from .gpuctl import run

# Of each kind of request one, with these.
SOME = {"401", "403", "404", "500", "200 with HTML", "truncated body", "broken stream", "reset", "503 once",
        "malformed object"}  # fmt: skip
STALLING = "stall"  # takes its time, so it meets lists alone
DEADLINE, START = 5, 25  # seconds: of a run, and what a busy machine needs to start and end the program


@pytest.fixture(scope="module")
def both(bed: Bed) -> Iterator[tuple[Matrix, ...]]:
    with matrices(bed) as found:
        assert all("unknown" not in _verdicts(each) for each in found), "the cluster is healthy before it all"
        yield found


def _verdicts(matrix: Matrix) -> set[str]:
    assert matrix.clean.report, matrix.clean.mistake
    return {each.verdict for check in matrix.clean.report.checks for each in check.assertions}


def objections(results: list[Result]) -> list[str]:
    return [f"{each.trial}: {objection}" for each in results for objection in each.objections]


def some(matrix: Matrix) -> list[Trial]:
    """The first request of each kind with each of some faults."""
    chosen: dict[tuple[str, str], Trial] = {}
    for trial in matrix.trials():
        kind, name = trial.asked.kind, trial.trouble.name
        if name in SOME or (name == STALLING and kind == "list"):
            chosen.setdefault((kind, name), trial)
    return list(chosen.values())


def test_a_request_of_each_kind_with_some_faults(both: tuple[Matrix, ...]) -> None:
    results = [found for each in both for found in each.results(some(each))]
    assert len(results) > 80
    assert not objections(results), "\n".join(objections(results))


@pytest.mark.api_faults
@pytest.mark.timeout(7200)
def test_every_request_with_every_fault(both: tuple[Matrix, ...]) -> None:
    results = [found for each in both for found in each.results(each.trials())]
    assert not objections(results), "\n".join(objections(results))
    assert steady(PAGE.read_text()) == steady(page(results)), f"write it anew: {COMMAND}"


def steady(text: str) -> list[str]:
    """A page without the rows that a busy machine changes: what is known at a deadline."""
    lasting = tuple(f"| {each.name} |" for each in TROUBLES if each.lasts)
    return [line for line in text.splitlines() if not line.startswith(lasting)]


def test_each_fault_has_a_name_of_its_own() -> None:
    assert len({each.name for each in TROUBLES}) == len(TROUBLES)
    assert {each.name for each in TROUBLES} >= SOME | {STALLING}


@pytest.fixture
def proxy(bed: Bed) -> Iterator[FaultProxy]:
    with FaultProxy(bed.kubeconfig) as proxy:
        yield proxy


HTML = Raw(b"<html><title>Sign in</title></html>", headers={"Content-Type": "text/html"})
EVERYWHERE = [
    (Unauthorized(), "unauthorized"),
    (Forbidden(), "forbidden"),
    (GatewayPage(), "server-error"),
    (HTML, "malformed"),
    (Dropped(), "unreachable"),
    (Stalled(), "timeout"),
    (Slow(3600, pieces=600), "timeout"),
]


@pytest.mark.parametrize(("answer", "reason"), EVERYWHERE, ids=lambda each: getattr(each, "code", ""))
def test_the_program_where_every_request_fails(proxy: FaultProxy, answer: Answer, reason: str) -> None:
    proxy.fault(answer, path=".*")
    began = time.monotonic()
    result = run("check", f"--deadline={DEADLINE}s", "-o", "json", kubeconfig=proxy.kubeconfig)
    taken = time.monotonic() - began
    report = json.loads(result.stdout)
    items = [each for check in report["checks"] for each in check["assertions"]]
    reasons = {gap["reason"] for each in items for gap in each["unknown"]}
    assert result.returncode == 3
    assert "Traceback" not in result.stderr
    assert not [each["id"] for each in items if each["verdict"] == "pass"]
    assert reason in reasons
    assert "internal-error" not in reasons
    assert taken < DEADLINE + START


def test_the_program_says_what_could_not_be_read_and_why(proxy: FaultProxy) -> None:
    proxy.fault(Forbidden('pods is forbidden: User "ann" cannot list'), path="/api/v1/.*pods")
    result = run("check", kubeconfig=proxy.kubeconfig)
    assert result.returncode == 3
    assert "pods" in result.stdout
    assert 'User "ann" cannot list' in result.stdout
