"""Phrases that several outputs share. All are safe to show."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.audit.report import AuditReport, EvidenceItem, NoticeItem, UnknownItem, WaiverItem
from gpuctl.report.plain import plain

SHOWN = 5


def source(report: AuditReport) -> str:
    """What was judged: the cluster or the snapshot, its version, and when it was taken."""
    origin = report.run.source
    where = f"snapshot {origin.name}" if origin.kind == "snapshot" else origin.name
    version = f", Kubernetes {origin.server_version}" if origin.server_version else ""
    taken = f", taken {origin.captured_at:%Y-%m-%d %H:%M:%S} UTC" if origin.captured_at else ""
    return plain(f"{where}{version}{taken}")


def unknown(item: UnknownItem) -> str:
    """What could not be judged, and why."""
    said = f": {plain(item.message)}" if item.message else ""
    accepted = " (accepted by the policy)" if item.accepted else ""
    return f"{plain(item.object)}: {plain(item.reason)}{said}{accepted}"


def waiver(item: WaiverItem) -> str:
    """Why a finding does not count."""
    return f"waived until {item.expires} by {plain(item.owner)}: {plain(item.reason)}"


def notice(item: NoticeItem) -> str:
    """What in the policy needs attention."""
    return f"{plain(item.subject)} {plain(item.message)}"


def evidence(item: EvidenceItem) -> str:
    """What was read, where and when."""
    return f"read {item.at:%H:%M:%S}  {plain(item.source)}: {plain(item.observed)}"


def some(names: Sequence[str], limit: int = SHOWN, hint: str = "") -> str:
    """The first names, and how many more there are."""
    rest = len(names) - limit
    return ", ".join(plain(name) for name in names[:limit]) + (f" and {rest} more{hint}" if rest > 0 else "")


def tally(report: AuditReport) -> str:
    """How many assertions came out how, and the exit code, for outputs that have no field for them."""
    counts = [f"{number} {verdict}" for verdict, number in report.outcome.counts.verdict.items()]
    return f"{', '.join(counts)}; exit code {int(report.outcome.exit_code)}"
