"""The findings of this check. An id is stable and never reused; README.md explains each."""

from __future__ import annotations

from gpuctl.audit.finding import Code, Severity

FAILED = Code("MIG001", "MIG manager failed")
STUCK_PENDING = Code("MIG002", "a MIG change is stuck")
STUCK_REBOOTING = Code("MIG003", "a node is stuck rebooting for MIG")
PAUSED = Code("MIG004", "operands are left paused")
INVALID = Code("MIG005", "the GPUs can't be described by strategy single")
LABELS_WRONG = Code("MIG006", "labels do not describe the hardware")
CAPACITY_WRONG = Code("MIG007", "a node does not offer what its hardware has")
UNHEALTHY = Code("MIG008", "devices are unhealthy")
STALE = Code("MIG009", "a node offers what its hardware does not have")
MODE_PENDING = Code("MIG010", "a change of MIG mode waits for a reset")
EMPTY = Code("MIG011", "MIG is on and there are no MIG devices")
NO_COMPUTE = Code("MIG012", "a GPU instance has no compute instance")
NOT_WHOLE = Code("MIG013", "a MIG device is only a part of its GPU instance")
STRATEGY = Code("MIG014", "the MIG strategy does not fit")
NOT_AS_CONFIGURED = Code("MIG015", "GPUs are not sliced as configured")
NO_SUCH_CONFIG = Code("MIG016", "the asked-for MIG configuration does not exist")
IMPOSSIBLE = Code("MIG017", "the GPU can't have an asked-for profile")
HAND_MADE = Code("MIG018", "labels were written by hand", Severity.WARNING)
NO_MANAGER = Code("MIG019", "MIG manager does not run on the node", Severity.WARNING)
GPU_MISSING = Code("MIG020", "a GPU is missing")
NO_ANSWER = Code("MIG021", "nvidia-smi does not answer as it should")
VANISHED = Code("MIG022", "a pod holds a device that is gone")
UNREQUESTED = Code("MIG023", "a pod sees GPUs without having asked for them", Severity.WARNING)
MPS_ON_MIG = Code("MIG024", "MPS is asked for on MIG devices")
OTHER_OWNER = Code("MIG026", "another than MIG manager decides the geometry", Severity.INFO)

OPERAND_MISSING = Code("MIG030", "a pod that serves GPUs does not run")
NOT_REDISCOVERED = Code(
    "MIG031", "GPU feature discovery was not restarted since the last change", Severity.WARNING
)
NOT_OFFERED = Code("MIG032", "pods ask for a resource that no node offers", Severity.WARNING)
MEMORY_EXCEEDED = Code("MIG033", "a MIG instance uses more memory than it has")
MEMORY_ODD = Code("MIG034", "the memory of MIG instances does not add up", Severity.WARNING)
UNDER_WAY = Code("MIG035", "a change is on its way", Severity.INFO)
LEFT_BEHIND = Code("MIG036", "debug pods of an earlier run are left", Severity.INFO)
DRA_DIFFERS = Code("MIG037", "ResourceSlices do not list the hardware")

ALL = (
    FAILED,
    STUCK_PENDING,
    STUCK_REBOOTING,
    PAUSED,
    INVALID,
    LABELS_WRONG,
    CAPACITY_WRONG,
    UNHEALTHY,
    STALE,
    MODE_PENDING,
    EMPTY,
    NO_COMPUTE,
    NOT_WHOLE,
    STRATEGY,
    NOT_AS_CONFIGURED,
    NO_SUCH_CONFIG,
    IMPOSSIBLE,
    HAND_MADE,
    NO_MANAGER,
    GPU_MISSING,
    NO_ANSWER,
    VANISHED,
    UNREQUESTED,
    MPS_ON_MIG,
    OTHER_OWNER,
    OPERAND_MISSING,
    NOT_REDISCOVERED,
    NOT_OFFERED,
    MEMORY_EXCEEDED,
    MEMORY_ODD,
    UNDER_WAY,
    LEFT_BEHIND,
    DRA_DIFFERS,
)
