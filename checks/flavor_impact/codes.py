"""The findings of this check. An id is stable and never reused; README.md explains each."""

from __future__ import annotations

from gpuctl.audit.finding import Code, Severity

TERMINATING = Code("RFI001", "a deleted ResourceFlavor is still in use", Severity.WARNING)
STUCK = Code("RFI002", "a deleted ResourceFlavor stays, although no ClusterQueue refers to it")
JUST_DELETED = Code("RFI003", "a ResourceFlavor was deleted a moment ago", Severity.INFO)

MISSING = Code("RFI010", "a ResourceFlavor that is referred to does not exist")
UNPROTECTED = Code(
    "RFI011", "only Cohorts refer to a ResourceFlavor, which does not protect it", Severity.WARNING
)
NO_FINALIZER = Code("RFI012", "a ResourceFlavor lacks the finalizer that protects it", Severity.WARNING)

NO_NODE = Code("RFI020", "no node behind a ResourceFlavor can take its pods", Severity.WARNING)
SHARED = Code("RFI021", "ResourceFlavors share their nodes", Severity.INFO)

NEVER_READ = Code("RFI030", "an annotation that Kueue has never read", Severity.INFO)
REFUSED = Code("RFI031", "a ClusterQueue that Kueue refuses as it is written")

DRILL_FAILED = Code("RFI040", "the last drill of a flavor's loss failed")
LEFT_BEHIND = Code("RFI041", "a drill has left objects behind", Severity.WARNING)
DRILLED = Code("RFI042", "what the last drill of a flavor's loss showed", Severity.INFO)

ALL = (
    TERMINATING,
    STUCK,
    JUST_DELETED,
    MISSING,
    UNPROTECTED,
    NO_FINALIZER,
    NO_NODE,
    SHARED,
    NEVER_READ,
    REFUSED,
    DRILL_FAILED,
    LEFT_BEHIND,
    DRILLED,
)
