"""What gpuctl itself leaves in a cluster: how it is labelled, and where it is kept."""

from __future__ import annotations

from typing import Final

from gpuctl.facts.fact import Argument
from gpuctl.facts.home import HOME

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
GPUCTL: Final = "gpuctl"
RUN: Final = "gpuctl.dev/run"
RUNBOOK: Final = "gpuctl.dev/runbook"

# The namespace of locks, journals and the results of drills.
STATE_NAMESPACE: Argument[str] = Argument("the state namespace", HOME)
