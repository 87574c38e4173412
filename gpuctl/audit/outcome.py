"""From verdicts to the exit code. The code never depends on the output format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Judgement, Verdict
from gpuctl.audit.report import CheckItem, Counts, Outcome


class Exit(IntEnum):
    """Exit codes of `gpuctl check`."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    INCOMPLETE = 3  # something required could not be judged, or there was nothing to judge at all
    INTERRUPTED = 130


def check_verdict(judgements: Iterable[Judgement]) -> Verdict:
    """fail, else unknown (never for a proof that was only not attempted), else not-applicable, else pass."""
    verdicts = {judgement.verdict for judgement in judgements}
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    if Verdict.UNKNOWN in verdicts:
        return Verdict.UNKNOWN
    if verdicts <= {Verdict.NOT_APPLICABLE, Verdict.NOT_PROVEN} and Verdict.NOT_APPLICABLE in verdicts:
        return Verdict.NOT_APPLICABLE
    return Verdict.PASS


def outcome(checks: Sequence[CheckItem], fail_on: str) -> Outcome:
    """The outcome of a run. `fail_on` is error, warning or never."""
    assertions = [assertion for check in checks for assertion in check.assertions]
    findings = [finding for assertion in assertions for finding in assertion.findings]
    failed = fail_on != "never" and any(
        Severity(finding.severity).at_least(Severity(fail_on)) for finding in findings
    )
    judged = any(check.verdict != Verdict.NOT_APPLICABLE for check in checks)
    incomplete = not judged or any(_incomplete(check) for check in checks)
    return Outcome(
        exit_code=_exit(failed=failed, incomplete=incomplete),
        failed=failed,
        incomplete=incomplete,
        counts=Counts(
            severity=_counted(Severity, [finding.severity for finding in findings]),
            verdict=_counted(Verdict, [assertion.verdict for assertion in assertions]),
        ),
    )


def _incomplete(check: CheckItem) -> bool:
    """Also when it failed: findings made before a gap stay, and so does the gap."""
    return check.verdict == Verdict.UNKNOWN or any(
        assertion.unknown and assertion.verdict != Verdict.NOT_PROVEN for assertion in check.assertions
    )


def _exit(*, failed: bool, incomplete: bool) -> Exit:
    if failed:
        return Exit.FINDINGS
    return Exit.INCOMPLETE if incomplete else Exit.CLEAN


def _counted(names: Iterable[str], seen: Iterable[str]) -> dict[str, int]:
    counts = Counter(seen)
    return {str(name): counts[name] for name in names}
