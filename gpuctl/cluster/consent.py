"""What a person lets a run do beyond reading. A reader holds it; checks never see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuctl.cluster.web import Server


class DryRuns(StrEnum):
    """Which creations are tried that the server does not store."""

    FLAVOR = "flavor"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Consent:
    """Without a word of the person's: reading alone, and no Secret. How pods are looked into is `Probing`."""

    dry_run: DryRuns = DryRuns.NONE
    webhook_secret: bool = False
    vllm_http: bool = False  # engines are asked over HTTP
    vllm_exec: bool = False  # the command lines of engines are read
    window: float | None = None  # seconds over which queues are watched
    prometheus: Server | None = None  # one that may be asked
    alertmanager: Server | None = None
