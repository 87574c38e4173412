"""PodDisruptionBudgets, as far as they are looked at."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gpuctl.facts.kinds import Kind, View


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`max_unavailable` is a number or a percentage."""

    max_unavailable: int | str | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the disruption controller has counted."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class Budget(View, frozen=True):
    """A PodDisruptionBudget."""

    of: ClassVar[Kind] = Kind(
        "policy", ("v1",), "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True
    )
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
