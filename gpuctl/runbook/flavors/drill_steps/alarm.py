"""The alert that should tell of the loss really fires."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuctl.facts.alerts import AlertState
from gpuctl.facts.fact import Alerts, Fact
from gpuctl.facts.gather import Facts
from gpuctl.runbook.flavors.drill_steps.loss import Break
from gpuctl.runbook.flavors.drill_steps.step import DrillStep


class Alarm(DrillStep, frozen=True, kw_only=True):
    """The alert that should tell of the loss fires. `alert`: its name; `within`: seconds."""

    pause: ClassVar[float] = 2.0
    measures: ClassVar[str] = "secondsToFire"

    alert: str
    within: float

    @property
    def says(self) -> str:
        return f"the alert {self.alert} fires"

    @property
    def limit(self) -> float:
        return self.within

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (*super().needs, Alerts())

    def took(self, facts: Facts) -> Mapping[str, Any]:
        """Counted from the loss, which came before what waits for it."""
        return self.took_since(facts, Break)

    def _states(self, facts: Facts) -> tuple[AlertState, ...]:
        """Of the alerts of this name that are about this drill, as far as their labels tell."""
        queue = self.names.main
        return tuple(
            each.state
            for _, each in facts[Alerts()].known()
            if each.name == self.alert and each.label("cluster_queue") in ("", queue)
        )

    def holds(self, facts: Facts) -> bool:
        return bool({AlertState.FIRING, AlertState.SILENCED} & {*self._states(facts)})

    def progress(self, facts: Facts) -> str:
        states = self._states(facts)
        return f"it is {states[0]}" if states else "it is not there yet"

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        silenced = AlertState.FIRING not in self._states(facts)
        return {"alert": self.alert, "alertSilenced": silenced, **self.took(facts)}
