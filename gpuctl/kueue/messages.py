"""What Kueue says of a waiting Workload. Texts differ by release, may be stale and are cut at 32 KiB, so they
never decide what objects can tell; a text that no row knows is unclassified, and shown as it is."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache


class Saying(StrEnum):
    """What a part of a message says."""

    TOO_LARGE = "the request is larger than what can ever be given"
    NO_QUOTA = "quota is in use"
    BORROWING_LIMIT = "the borrowing limit is reached"
    NOT_COVERED = "the ClusterQueue does not cover a resource"
    NO_FLAVOR = "a flavor does not exist"
    TAINT = "a taint is not tolerated"
    AFFINITY = "node affinity does not fit"
    TOPOLOGY = "the topology has no room"
    PREEMPTING = "preemption is under way"
    OTHERS_FIRST = "others were taken first"
    PODS_READY = "admitted Workloads are waited for until their pods are ready"
    QUEUE = "the queue is missing, inactive or stopped"
    NAMESPACE = "the namespace is not selected"
    LIMIT_RANGE = "a LimitRange forbids it"
    INVALID = "its resources are not valid"
    CLAIM = "its resource claims can't be counted"
    CHECKS = "admission checks failed"
    INACTIVE = "it is deactivated"
    NOT_LOOKED = "an equal Workload was looked at instead"
    UNCLASSIFIED = "unclassified"


# The first row that occurs in a part is what it says: the more special before the more general.
_ROWS: tuple[tuple[str, Saying], ...] = (
    (r"maximum capacity|insufficient quota for \S+ in flavor \S+ in ClusterQueue", Saying.TOO_LARGE),
    (r"borrowing limit for .* exceeded", Saying.BORROWING_LIMIT),
    (r"insufficient unused quota", Saying.NO_QUOTA),
    (r"resource \S+ unavailable in ClusterQueue", Saying.NOT_COVERED),
    (r"flavor \S+ not found", Saying.NO_FLAVOR),
    (r"untolerated taint", Saying.TAINT),
    (r"doesn't match node affinity", Saying.AFFINITY),
    (r"topology|TopologyAwareScheduling|topologies", Saying.TOPOLOGY),
    (r"namespace doesn't match ClusterQueue selector", Saying.NAMESPACE),
    (r"LimitRange", Saying.LIMIT_RANGE),
    (r"resources validation failed", Saying.INVALID),
    (r"DRA |DynamicResourceAllocation|DRAIntegration|resourceClaim|[Dd]evice ?[Cc]lass", Saying.CLAIM),
    (r"in PodsReady condition", Saying.PODS_READY),
    (r"(?:Local|Cluster)Queue \S+ (?:doesn't exist|not found|is (?:in|stop|termin))", Saying.QUEUE),
    (r"failed admission checks", Saying.CHECKS),
    (r"is deactivated", Saying.INACTIVE),
    (r"an equivalent workload recently failed", Saying.NOT_LOOKED),
    (r"no longer fits after processing|other workloads in the cohort were prioritized", Saying.OTHERS_FIRST),
    (r"[Pp]reempt", Saying.PREEMPTING),
)
_COMPILED = tuple((re.compile(words), saying) for words, saying in _ROWS)


@lru_cache(maxsize=4096)  # thousands of Workloads are told the same
def sayings(message: str) -> frozenset[Saying]:
    """What a message says in its parts; unclassified if no part is known."""
    found = {saying for words, saying in _COMPILED if words.search(message)}
    if Saying.TOO_LARGE in found and "insufficient unused quota" not in message:
        found.discard(Saying.NO_QUOTA)
    return frozenset(found or {Saying.UNCLASSIFIED}) if message else frozenset()


def only(message: str, *expected: Saying) -> bool:
    """Whether a message says this and nothing else."""
    found = sayings(message)
    return bool(found) and found <= set(expected)
