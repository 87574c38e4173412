"""A finding: what is wrong with one object, how it is known, and what to do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from gpuctl.facts.kinds import Ref


class Severity(StrEnum):
    """error: work fails now. warning: it will fail, or is at risk. info: worth knowing; rides on a pass."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    def at_least(self, other: Severity) -> bool:
        """Whether this is as grave as `other`, or graver."""
        order = list(Severity)
        return order.index(self) <= order.index(other)


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding. Its id is stable and never reused; its text stands in the check's README.md."""

    id: str
    title: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read, and where. The run adds when."""

    source: Ref
    where: str  # the path inside the object, in kubectl's JSONPath habit; empty for the object as a whole
    observed: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with one object.

    `mark` tells findings of one code on one object apart; it is part of the fingerprint, so it must not
    change while the fault stays. Findings with the same code and `cause` are shown as one line.
    """

    code: Code
    object: Ref
    message: str
    evidence: tuple[Evidence, ...]
    look: str
    remedy: str
    mark: str = ""
    cause: str = ""
    severity: Severity | None = None
    runbook: str | None = None

    @property
    def weight(self) -> Severity:
        """The severity of this finding: the code's, unless this case differs."""
        return self.severity or self.code.severity

    @property
    def fingerprint(self) -> str:
        """The same for the same fault in every run, live or from a snapshot."""
        kind = self.object.kind
        parts = (self.code.id, kind.group, kind.kind, self.object.namespace, self.object.name, self.mark)
        return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]
