"""Alerts that a monitoring system beside the cluster tells of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpuctl.facts.metrics import Labels

NAME = "alertname"  # the label that bears an alert's name


class AlertState(StrEnum):
    """What is told of an alert that is not over."""

    FIRING = "firing"
    SILENCED = "silenced"  # it fires; a person, or another alert, keeps it from being sent
    PENDING = "pending"  # its condition holds, not yet for long enough


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert that is not over. `since` is None where that is not told."""

    labels: Labels
    state: AlertState
    since: datetime | None = None

    @property
    def name(self) -> str:
        """What its rule calls it; empty if it bears none."""
        return self.label(NAME)

    def label(self, name: str) -> str:
        """The value of a label, empty if it has none of that name."""
        return next((value for each, value in self.labels if each == name), "")
