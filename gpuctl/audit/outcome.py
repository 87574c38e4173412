"""From verdicts to the exit code. The code never depends on the output format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from gpuctl.audit.assertion import Strength
from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import NOT_ATTEMPTED, Verdict
from gpuctl.audit.report import AssertionItem, CheckItem, Counts, FindingItem, Outcome, UnknownItem

# What accepted gaps and missing proofs leave: without any of these, a run has looked at nothing.
_JUDGED = frozenset({Verdict.PASS, Verdict.FAIL})


class Exit(IntEnum):
    """Exit codes of `gpuctl check`."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    INCOMPLETE = 3  # something required could not be judged, or there was nothing to judge at all
    INTERRUPTED = 130


def check_verdict(assertions: Iterable[Verdict]) -> Verdict:
    """fail, else unknown (never for a proof that was only not attempted), else not-applicable, else pass."""
    verdicts = set(assertions)
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    if Verdict.UNKNOWN in verdicts:
        return Verdict.UNKNOWN
    if not verdicts or (
        verdicts <= {Verdict.NOT_APPLICABLE, Verdict.NOT_PROVEN} and Verdict.NOT_APPLICABLE in verdicts
    ):
        return Verdict.NOT_APPLICABLE
    return Verdict.PASS


@dataclass(frozen=True, slots=True)
class Gate:
    """What a run must meet. `fail_on` is error, warning or never.

    `only_new` spares what the baseline knows; `require` names checks that must apply; `require_proof` wants
    every proof made; `min_coverage` is the percentage of each check's reads that must have been done.
    """

    fail_on: str = "error"
    only_new: bool = False
    require: Collection[str] = ()
    require_proof: bool = False
    min_coverage: float = 0


def outcome(checks: Sequence[CheckItem], gate: Gate) -> Outcome:
    """The outcome of a run."""
    assertions = [assertion for check in checks for assertion in check.assertions]
    findings = [finding for assertion in assertions for finding in assertion.findings if counts(finding)]
    failed = any(_fails(finding, gate) for finding in findings)
    judged = any(assertion.verdict in _JUDGED for assertion in assertions)
    unrun = set(gate.require).difference(check.id for check in checks)
    incomplete = not judged or bool(unrun) or any(_incomplete(check, gate) for check in checks)
    return Outcome(
        exit_code=_exit(failed=failed, incomplete=incomplete),
        failed=failed,
        incomplete=incomplete,
        counts=Counts(
            severity=_counted(Severity, [finding.severity for finding in findings]),
            verdict=_counted(Verdict, [assertion.verdict for assertion in assertions]),
        ),
    )


def counts(finding: FindingItem) -> bool:
    """Whether a finding weighs: a waived one is shown and does not."""
    return finding.waiver is None


def _fails(finding: FindingItem, gate: Gate) -> bool:
    if gate.fail_on == "never" or (gate.only_new and finding.known):
        return False
    return Severity(finding.severity).at_least(Severity(gate.fail_on))


def _incomplete(check: CheckItem, gate: Gate) -> bool:
    """Also when it failed: findings made before a gap stay, and so does the gap."""
    if check.verdict == Verdict.NOT_APPLICABLE and check.id in gate.require:
        return True
    if check.coverage.read * 100 < gate.min_coverage * check.coverage.expected:
        return True
    return any(
        _leaves_open(assertion, gap, gate) for assertion in check.assertions for gap in assertion.unknown
    )


def _leaves_open(assertion: AssertionItem, gap: UnknownItem, gate: Gate) -> bool:
    unattempted = assertion.kind == Strength.PROOF and gap.reason in NOT_ATTEMPTED
    return not gap.accepted and (gate.require_proof or not unattempted)


def _exit(*, failed: bool, incomplete: bool) -> Exit:
    if failed:
        return Exit.FINDINGS
    return Exit.INCOMPLETE if incomplete else Exit.CLEAN


def _counted(names: Iterable[str], seen: Iterable[str]) -> dict[str, int]:
    counts = Counter(seen)
    return {str(name): counts[name] for name in names}
