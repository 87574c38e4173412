"""A Deployment that is started anew, and the wait until its new pods have taken over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Kind, Ref, Rule, View
from gpuctl.facts.objects import Deployment, DeploymentStatus, LabelSelector
from gpuctl.runbook.objects import NumberedMeta, in_namespace, targeted
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import SELF
from gpuctl.runbook.writer import Change, Put, Test, Writer, pointer

RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"  # as `kubectl rollout restart` marks it
RESTARTED_BY: Final = "gpuctl.dev/restarted-by"
PATCHES_DEPLOYMENTS: Final = Rule("apps", "deployments", "patch", namespaced=True)
_TEMPLATE: Final = ("spec", "template", "metadata", "annotations")


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pass


class _TemplateMeta(_Part, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Template(_Part, frozen=True):
    metadata: _TemplateMeta = _TemplateMeta()


class RolledSpec(_Part, frozen=True):
    replicas: int = 1
    paused: bool = False
    selector: LabelSelector = LabelSelector()
    template: _Template = _Template()


def unfinished(metadata: NumberedMeta, wanted: int, told: DeploymentStatus) -> str:
    """What is not over yet of the rollout of so many wanted pods; empty if none is at work."""
    if told.observed_generation < metadata.generation:
        return "its newest generation was not seen yet"
    if told.updated_replicas < wanted:
        return f"{told.updated_replicas} of {wanted} pods are new"
    if told.replicas > told.updated_replicas:
        return f"{told.replicas - told.updated_replicas} old pods are left"
    return ""


class Rolled(View, frozen=True):
    """A Deployment, as far as its rollout tells whether its new pods have taken over."""

    of: ClassVar[Kind] = Deployment.of
    metadata: NumberedMeta
    spec: RolledSpec = RolledSpec()
    status: DeploymentStatus = DeploymentStatus()

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of its pods."""
        return self.spec.template.metadata.annotations

    @property
    def underway(self) -> str:
        """What is not over yet of a rollout; empty if none is at work."""
        return unfinished(self.metadata, self.spec.replicas, self.status)

    @property
    def missing(self) -> str:
        """How many pods are not available; empty if all are."""
        told, wanted = self.status, self.spec.replicas
        ready = min(told.available_replicas, told.ready_replicas)
        return f"{ready} of {wanted} pods are available" if ready < wanted else ""

    @property
    def given_up(self) -> str:
        """Why the controller gave its rollout up; empty if it did not, or said so of the one before."""
        if self.status.observed_generation < self.metadata.generation:
            return ""
        gone = (each for each in self.status.conditions if each.reason == "ProgressDeadlineExceeded")
        return next((each.message for each in gone), "")


ROLLED: Final = targeted(Rolled, in_namespace(Deployment.of))


class OnDeployment(Step, frozen=True, kw_only=True):
    """A step about one Deployment, known by its uid."""

    namespace: str
    name: str
    uid: str

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (ROLLED.now, SELF)

    @property
    def ref(self) -> Ref:
        """The Deployment."""
        return Ref(Deployment.of, self.name, self.namespace)

    def ours(self, facts: Facts) -> bool:
        """Whether its pods are those that this run asked for."""
        return facts[ROLLED.now].annotations.get(RESTARTED_BY) == facts[SELF].run


class Restart(OnDeployment, frozen=True, kw_only=True):
    """Asks for new pods as `kubectl rollout restart` does, with the run's name beside it. Old pods can't be
    brought back, so there is nothing to undo. `generation`: the Deployment's when the plan was made. What is
    another one without this run's name was changed by somebody, and no second restart is made of it."""

    once: ClassVar[bool] = True
    generation: int

    @property
    def says(self) -> str:
        return f"restart {self.ref}"

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({PATCHES_DEPLOYMENTS})

    def holds(self, facts: Facts) -> bool:
        return self.ours(facts)

    def stuck(self, facts: Facts) -> str:
        if facts[ROLLED.now].metadata.generation == self.generation:
            return ""
        return f"{self.ref} was changed by somebody else meanwhile, or the restart was taken back"

    def act(self, facts: Facts, writer: Writer) -> None:
        writer.patch(self.ref, self.uid, restarting(facts[ROLLED.now], facts.now, facts[SELF].run))


def restarting(found: Rolled, at: datetime, run: str = "") -> Sequence[Change]:
    """The patch by which `kubectl rollout restart` asks for new pods, with the run's name if it is one's."""
    there = found.annotations
    marks = {**({RESTARTED_BY: run} if run else {}), RESTARTED_AT: f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    if not there:
        return Test(pointer(*_TEMPLATE), None), Put(pointer(*_TEMPLATE), marks)
    return tuple(
        change
        for name, text in marks.items()
        for change in (
            Test(pointer(*_TEMPLATE, name), there.get(name)),
            Put(pointer(*_TEMPLATE, name), text),
        )
    )


class TakenOver(OnDeployment, frozen=True, kw_only=True):
    """Waits until the new pods are available and none of the old ones is left, but such as are ending."""

    timeout: float = 600.0

    @property
    def says(self) -> str:
        return f"wait until the new pods of {self.ref} have taken over"

    @property
    def limit(self) -> float:
        return self.timeout

    def holds(self, facts: Facts) -> bool:
        found = facts[ROLLED.now]
        return self.ours(facts) and not found.underway and not found.missing

    def stuck(self, facts: Facts) -> str:
        if not self.ours(facts):
            return f"somebody took the restart of {self.ref} back, or restarted it anew"
        given_up = facts[ROLLED.now].given_up
        return f"the rollout of {self.ref} was given up: {given_up}" if given_up else ""

    def progress(self, facts: Facts) -> str:
        found = facts[ROLLED.now]
        return found.underway or found.missing
