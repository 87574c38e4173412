"""PodDisruptionBudgets that let no node be drained."""

from __future__ import annotations

from gpuctl.audit.check import Check
from gpuctl_disruption_budgets import codes
from gpuctl_disruption_budgets.budgets import budgets_permit_evictions

CHECK = Check(
    id="disruption-budgets",
    title="PodDisruptionBudgets that let no node be drained",
    package=__name__,
    codes=codes.ALL,
    assertions=(budgets_permit_evictions,),
)
