"""The report of a run, in the shape of the JSON contract. Fields are only ever added."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import msgspec

API_VERSION = "gpuctl.dev/v1"


class _Part(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


class ObjectRef(_Part, frozen=True, kw_only=True):
    api_version: str
    kind: str
    namespace: str
    name: str


class EvidenceItem(_Part, frozen=True, kw_only=True):
    source: str
    observed: str
    at: datetime


class WaiverItem(_Part, frozen=True, kw_only=True):
    """Why a finding does not count, who answers for it, and until when (a date, inclusive)."""

    reason: str
    owner: str
    expires: date


class FindingItem(_Part, frozen=True, kw_only=True):
    code: str
    severity: str
    object: ObjectRef
    message: str
    evidence: tuple[EvidenceItem, ...]
    look: str
    remedy: str
    runbook: str | None
    fingerprint: str
    cause: str = ""
    waiver: WaiverItem | None = None
    known: bool = False  # it stood in the baseline already


class UnknownItem(_Part, frozen=True, kw_only=True):
    """`object` is what could not be judged, as a person would name it."""

    object: str
    reason: str
    message: str = ""
    accepted: bool = False  # the policy says that this may stay unknown


class AssertionItem(_Part, frozen=True, kw_only=True):
    id: str
    statement: str
    kind: str
    verdict: str
    reason: str
    looked: int
    findings: tuple[FindingItem, ...]
    unknown: tuple[UnknownItem, ...]


class MissingItem(_Part, frozen=True, kw_only=True):
    resource: str
    reason: str
    message: str = ""
    namespace: str = ""
    name: str = ""


class Coverage(_Part, frozen=True, kw_only=True):
    """Counts reads: a list of a kind is one, an object read by name is one."""

    expected: int
    read: int
    missing: tuple[MissingItem, ...]


class SubjectItem(_Part, frozen=True, kw_only=True):
    object: ObjectRef
    facts: dict[str, Any]


class CheckItem(_Part, frozen=True, kw_only=True):
    id: str
    title: str
    verdict: str
    assertions: tuple[AssertionItem, ...]
    coverage: Coverage
    subjects: tuple[SubjectItem, ...]


def scoped(name: str, namespace: str) -> str:
    """The name of a source of which only a namespace was looked into, or of all of it."""
    return f"{name}, namespace {namespace}" if namespace else name


class Source(_Part, frozen=True, kw_only=True):
    """Where the facts come from. `kind` is live or snapshot."""

    kind: str
    name: str
    cluster_uid: str = msgspec.field(default="", name="clusterUID")
    server_version: str = ""
    captured_at: datetime | None = None


class Run(_Part, frozen=True, kw_only=True):
    id: str
    started_at: datetime
    finished_at: datetime
    version: str
    source: Source


class Counts(_Part, frozen=True, kw_only=True):
    """`severity` counts findings, `verdict` counts assertions."""

    severity: dict[str, int]
    verdict: dict[str, int]


class Outcome(_Part, frozen=True, kw_only=True):
    """`failed`: findings at or above --fail-on. `incomplete`: something required could not be judged."""

    exit_code: int
    failed: bool
    incomplete: bool
    counts: Counts


class NoticeItem(_Part, frozen=True, kw_only=True):
    """A decision in the policy that needs attention: an expired or unused waiver or acceptance."""

    subject: str
    state: str
    message: str


class AuditReport(_Part, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "AuditReport"
    run: Run
    outcome: Outcome
    checks: tuple[CheckItem, ...]
    notices: tuple[NoticeItem, ...] = ()
