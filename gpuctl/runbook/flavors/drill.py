"""The runbook `flavor-drill`: the loss of a ResourceFlavor, tried out on canary objects alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each
from gpuctl.kueue.drills import DRILL
from gpuctl.kueue.facts import API_SERVICES
from gpuctl.kueue.objects import ResourceFlavor
from gpuctl.runbook.flavors.canaries import (
    DOWN,
    FIRST,
    RULES,
    SECOND,
    THIRD,
    UNIT,
    DrillFlavor,
    DrillQueue,
    Left,
    version_that_is_written,
)
from gpuctl.runbook.flavors.drill_guards import DRILL_GUARDS, EXPECT_ALERT, FORCE_MISSING
from gpuctl.runbook.flavors.drill_steps.admission import Admit, AdmitAgain, StayWaiting
from gpuctl.runbook.flavors.drill_steps.alarm import Alarm
from gpuctl.runbook.flavors.drill_steps.comparison import ALL_FLAVORS, ALL_QUEUES, Compare, all_others, others
from gpuctl.runbook.flavors.drill_steps.deletion import DeleteFlavor, StayTerminating, Swap
from gpuctl.runbook.flavors.drill_steps.loss import Break, Restore
from gpuctl.runbook.flavors.drill_steps.making import Make, Remove
from gpuctl.runbook.flavors.leftovers import LEFTOVERS, Sweep
from gpuctl.runbook.gates import ALWAYS, window_not_closed
from gpuctl.runbook.runbook import Option, Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import OPTIONS, SELF, Self

CANARY: Final = "canary"
WITHIN: Final = 300.0  # seconds for an alert
STEPS: Final = (
    Sweep,
    Make,
    Admit,
    DeleteFlavor,
    StayTerminating,
    Swap,
    Break,
    StayWaiting,
    Alarm,
    Restore,
    AdmitAgain,
    Compare,
    Remove,
)

ABOUT: Final = """\
Deleting a ResourceFlavor that is in use looks harmless and can't be taken back: Kueue's finalizer keeps it
Terminating for good, its ClusterQueues stay Active and go on admitting, nothing is evicted, and nothing says
so. With the next edit that drops the reference it is gone. This drill shows that on objects of its own: a
namespace, two flavors, a ClusterQueue without a cohort, a LocalQueue, and bare Workloads that ask for a
resource no node offers, so that no pod is made. No object of anybody else is written to, and at the end all
other ClusterQueues and flavors are compared with what they were.

With --force-missing the finalizer is taken off the canary flavor, which makes the loss real: it is measured
how long the ClusterQueue takes to go inactive and, once the flavor is there again, to recover. With
--expect-alert NAME the drill waits in between until your monitoring fires that alert.

What goes otherwise than documented is told; what must never happen (an eviction, another queue that stops)
fails the run. `gpuctl undo RUN` removes what a drill left behind, from any point."""


@given()
def the_canary() -> str:
    return CANARY


@given(SELF, OPTIONS, version_that_is_written, ALL_QUEUES, ALL_FLAVORS)
def steps_of_a_drill(
    self: Self,
    options: Mapping[str, Any],
    version: str,
    queues: Each[Ref, DrillQueue],
    flavors: Each[Ref, DrillFlavor],
) -> tuple[Step, ...]:
    about: Mapping[str, Any] = {"run": self.run or "RUN", "version": version}
    return (
        Sweep(version=version),
        Make(**about),
        Admit(**about, name=FIRST),
        DeleteFlavor(**about),
        StayTerminating(**about),
        Admit(**about, name=SECOND, going=True),
        *(_missing(about, options) if options.get("force_missing") is True else (Swap(**about),)),
        Compare(**about, queues=others(queues), flavors=others(flavors)),
        Remove(**about),
    )


def _missing(about: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[Step, ...]:
    alert, within = str(options.get("expect_alert") or ""), float(options.get("alert_timeout") or WITHIN)
    return (
        Break(**about),
        StayWaiting(**about, name=THIRD),
        *((Alarm(**about, alert=alert, within=within),) if alert else ()),
        Restore(**about),
        AdmitAgain(**about, name=THIRD),
    )


@given(OPTIONS, LEFTOVERS, ALL_QUEUES, ALL_FLAVORS, DOWN)
def what_a_drill_does(
    options: Mapping[str, Any],
    leftovers: Mapping[str, Left],
    queues: Each[Ref, DrillQueue],
    flavors: Each[Ref, DrillFlavor],
    _down: bool,
) -> tuple[str, ...]:
    """The last one is what its steps look at: so the permissions for it are asked for beforehand."""
    missing = options.get("force_missing") is True
    loss = (
        "the canary flavor is lost: its finalizer is taken off"
        if missing
        else "the canary flavor is deleted in use, and goes once its ClusterQueue has another"
    )
    return (
        "makes a namespace, flavors, a ClusterQueue, a LocalQueue and Workloads, all named gpuctl-drill-RUN",
        f"the Workloads ask for {UNIT}, which no node offers, and make no pods",
        loss,
        f"leaves {all_others(others(queues), others(flavors))} as they are",
        *(f"removed first, what run {run} left behind: {left}" for run, left in leftovers.items()),
        "everything is removed at the end",
    )


RUNBOOK: Final = Runbook(
    id=DRILL,
    title="try out the loss of a ResourceFlavor on canary objects",
    about=ABOUT,
    target="canary",
    default_target=CANARY,
    back="everything that the run made is removed; nothing else was changed",
    guards=(*ALWAYS, window_not_closed, *DRILL_GUARDS),
    steps=steps_of_a_drill,
    step_types=STEPS,
    kind=ResourceFlavor.of,
    options=(
        Option(FORCE_MISSING, "make the loss real: take the finalizer off the canary flavor"),
        Option(EXPECT_ALERT, "wait until this alert fires; needs --force-missing and a monitoring URL", ""),
        Option("--alert-timeout", "seconds for that", WITHIN),
    ),
    effects=what_a_drill_does,
    target_uid=the_canary,
    rules=RULES,
    unheeded=(API_SERVICES,),
)
