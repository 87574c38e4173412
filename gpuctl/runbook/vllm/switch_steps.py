"""The steps of vllm-switch-mode: the change of the pods, and the new pods' own word that it came about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Kind, Log, Ref, Rule
from gpuctl.facts.objects import ContainerStatus, Deployment
from gpuctl.facts.state import Known
from gpuctl.runbook.drain.owners import StatefulSet
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import SELF
from gpuctl.runbook.vllm.engine_workloads import (
    LOGS,
    SWITCHED_BY,
    EngineWorkload,
    place_of,
    pods_of_this_run,
    the_engine,
    the_workload,
)
from gpuctl.runbook.writer import Change, Drop, Put, Test, Writer, pointer
from gpuctl.vllm import mode as modes
from gpuctl.vllm.objects import EngineContainer, EnginePod, Strategy
from gpuctl.vllm.switch import Edit, stands

RECREATED_BY: Final = "gpuctl.dev/recreated-by"
RULES: Final = frozenset(
    Rule("apps", resource, "patch", namespaced=True) for resource in ("deployments", "statefulsets")
)
TRIES: Final = 3  # restarts after which a new pod is taken for one that fails
_STRATEGY: Final = "/spec/strategy"


def word(*, graphs: bool) -> str:
    """The mode as a person names it."""
    return "graphs" if graphs else "eager"


class OnWorkload(Step, frozen=True, kw_only=True):
    """A step about one Deployment or StatefulSet, known by its uid."""

    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (the_workload, SELF)

    @property
    def rules(self) -> frozenset[Rule]:
        return RULES

    @property
    def ref(self) -> Ref:
        """The Deployment or StatefulSet."""
        kind: Kind = Deployment.of if self.kind == Deployment.of.kind else StatefulSet.of
        return Ref(kind, self.name, self.namespace)


class UseRecreate(OnWorkload, frozen=True, kw_only=True):
    """Lets the old pods end before new ones start, until the change is verified or taken back. `before`: the
    strategy that stood there."""

    held: ClassVar[bool] = True
    before: Mapping[str, Any]

    @property
    def says(self) -> str:
        return f"let the pods of {self.ref} end before new ones start (strategy Recreate)"

    @property
    def undoes(self) -> str:
        return f"set the strategy of {self.ref} back to {self.before.get('type', '')}"

    def holds(self, facts: Facts) -> bool:
        return facts[the_workload].spec.strategy.type == "Recreate"

    def act(self, facts: Facts, writer: Writer) -> None:
        writer.patch(
            self.ref,
            self.uid,
            (
                Test(f"{_STRATEGY}/type", self.before.get("type")),
                Put(_STRATEGY, {"type": "Recreate"}),
                *_mark(
                    facts[the_workload].metadata.annotations, ("metadata",), RECREATED_BY, facts[SELF].run
                ),
            ),
        )

    def undone(self, facts: Facts) -> bool:
        return facts[the_workload].metadata.annotations.get(RECREATED_BY) != facts[SELF].run

    def undo(self, facts: Facts, writer: Writer) -> None:
        """A strategy that somebody set in between stays: then the mark is all that is left."""
        changes: list[Change] = [*_unmark(("metadata",), RECREATED_BY, facts[SELF].run, "")]
        if facts[the_workload].spec.strategy.type == "Recreate":
            changes += (Test(f"{_STRATEGY}/type", "Recreate"), Put(_STRATEGY, self.before))
        writer.patch(self.ref, self.uid, changes)


def raw(strategy: Strategy) -> Mapping[str, Any]:
    """A strategy as the API has it."""
    update = strategy.rolling_update
    parts = {"maxSurge": update.max_surge, "maxUnavailable": update.max_unavailable}
    known = {name: part for name, part in parts.items() if part is not None}
    return {"type": strategy.type, **({"rollingUpdate": known} if known else {})}


class SetMode(OnWorkload, frozen=True, kw_only=True):
    """Changes what the pods are started with. Taken back, it is the old template, and its pods: that takes
    until none of the new ones is left."""

    container: str
    to: str
    edits: tuple[Edit, ...]
    marked_before: str = ""
    timeout: float = 1800.0

    @property
    def says(self) -> str:
        return f"switch {self.ref} to {self.to}: {'; '.join(map(str, self.edits))}"

    @property
    def undoes(self) -> str:
        return f"set the old template of {self.ref} again, and wait for its pods"

    @property
    def limit(self) -> float:
        return self.timeout

    def _container(self, workload: EngineWorkload) -> EngineContainer | None:
        found = (each for each in workload.spec.template.spec.containers if each.name == self.container)
        return next(found, None)

    def _all(self, facts: Facts, *, after: bool) -> bool:
        container = self._container(facts[the_workload])
        return container is not None and all(
            stands(container, each) == (each.after if after else each.before) for each in self.edits
        )

    def ours(self, facts: Facts) -> bool:
        """Whether the pods are those that this run asked for."""
        return facts[the_workload].switched_by == facts[SELF].run

    def holds(self, facts: Facts) -> bool:
        return self.ours(facts) and self._all(facts, after=True)

    def stuck(self, facts: Facts) -> str:
        if not self.ours(facts) and self._all(facts, after=False):
            return ""
        return f"somebody else changed how {self.ref} starts its engine"

    def act(self, facts: Facts, writer: Writer) -> None:
        workload = facts[the_workload]
        there = workload.spec.template.metadata.annotations
        writer.patch(
            self.ref,
            self.uid,
            (
                *edited(place_of(workload, self.container), self.container, self.edits),
                *_mark(there, ("spec", "template", "metadata"), SWITCHED_BY, facts[SELF].run),
            ),
        )

    def undone(self, facts: Facts) -> bool:
        return not self.ours(facts) and not facts[the_workload].underway

    def hampered(self, facts: Facts) -> str:
        if self.ours(facts) and not self._all(facts, after=True):
            return f"somebody else changed how {self.ref} starts its engine"
        return ""

    def progress(self, facts: Facts) -> str:
        return _rollout(facts[the_workload])

    def undo(self, facts: Facts, writer: Writer) -> None:
        workload = facts[the_workload]
        if self.ours(facts):
            back = tuple(Edit(each.path, each.after, each.before, each.named) for each in self.edits)
            template = ("spec", "template", "metadata")
            writer.patch(
                self.ref,
                self.uid,
                (
                    *edited(place_of(workload, self.container), self.container, back),
                    *_unmark(template, SWITCHED_BY, facts[SELF].run, self.marked_before),
                ),
            )


def edited(number: int, container: str, edits: Sequence[Edit]) -> Iterator[Change]:
    """The patch, which holds only while the container stands where it stood, and says what it said."""
    place = ("spec", "template", "spec", "containers", str(number))
    yield Test(pointer(*place, "name"), container)
    for edit in edits:
        if edit.named:
            yield Test(pointer(*place, *edit.path[:-1], "name"), edit.named)
        yield Test(pointer(*place, *edit.path), edit.before)
        yield Put(pointer(*place, *edit.path), edit.after)


def _mark(there: Mapping[str, str], parent: tuple[str, ...], name: str, run: str) -> Iterator[Change]:
    path = pointer(*parent, "annotations")
    if not there:
        yield Test(path, None)
        yield Put(path, {name: run})
    else:
        yield Test(pointer(*parent, "annotations", name), there.get(name))
        yield Put(pointer(*parent, "annotations", name), run)


def _unmark(parent: tuple[str, ...], name: str, run: str, before: str) -> Iterator[Change]:
    path = pointer(*parent, "annotations", name)
    yield Test(path, run)
    yield Put(path, before) if before else Drop(path)


def _rollout(workload: EngineWorkload) -> str:
    """What is not over yet of a rollout, and what a person may have to do for it; empty once it is over."""
    return (
        "; ".join(filter(None, [workload.underway, workload.broken_pods_stay])) if workload.underway else ""
    )


class SeeMode(OnWorkload, frozen=True, kw_only=True):
    """Waits until every pod is a new one that serves, and whose own log says that it runs in the mode."""

    container: str
    graphs: bool
    timeout: float = 1800.0

    pause: ClassVar[float] = 5.0

    @property
    def says(self) -> str:
        return (
            f"wait until every new pod of {self.ref} serves, and its log says that it runs "
            f"{word(graphs=self.graphs)}"
        )

    @property
    def limit(self) -> float:
        return self.timeout

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (the_workload, the_engine, pods_of_this_run, LOGS, SELF)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset()

    def holds(self, facts: Facts) -> bool:
        workload = facts[the_workload]
        pods = list(facts[pods_of_this_run])
        return (
            not workload.underway
            and len(pods) == workload.spec.replicas
            and all(self._ready(pod) for pod in pods)
            and all(found is not None and found.graphs is self.graphs for found in self._modes(facts, pods))
        )

    def stuck(self, facts: Facts) -> str:
        if facts[the_workload].switched_by != facts[SELF].run:
            return f"somebody else changed {self.ref} meanwhile"
        for pod in facts[pods_of_this_run]:
            why = self._wrong(facts, pod)
            if why:
                return f"{pod.ref} {why}"
        return ""

    def _wrong(self, facts: Facts, pod: EnginePod) -> str:
        (found,) = self._modes(facts, [pod])
        if found is not None and found.graphs is not self.graphs and self._ready(pod):
            quote = f", its log says: {found.quote.text}" if found.quote else ""
            return f"runs {found} all the same ({found.why}{quote})"
        status = self._status(pod)
        if status is not None and status.restart_count >= TRIES and not status.ready:
            ended = status.last_state.terminated
            return f"fails again and again to start{f': exit {ended.exit_code}' if ended else ''}"
        return ""

    def progress(self, facts: Facts) -> str:
        workload, pods = facts[the_workload], list(facts[pods_of_this_run])
        ready = sum(self._ready(pod) for pod in pods)
        waiting = [
            each.message
            for pod in pods
            for each in pod.status.conditions
            if each.type == "PodScheduled" and each.status == "False"
        ]
        told = sum(each is not None for each in self._modes(facts, pods))
        parts = [f"{ready} of {workload.spec.replicas} new pods serve", f"{told} logs tell the mode"]
        return "; ".join([*filter(None, [_rollout(workload)]), *parts, *waiting[:1]])

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        quotes = [
            found.quote.text
            for found in self._modes(facts, list(facts[pods_of_this_run]))
            if found and found.quote
        ]
        return {"mode": word(graphs=self.graphs), "log": quotes[:1]}

    def _modes(self, facts: Facts, pods: Sequence[EnginePod]) -> list[modes.Mode | None]:
        return [self._mode(facts, pod) for pod in pods]

    def _mode(self, facts: Facts, pod: EnginePod) -> modes.Mode | None:
        """By its log alone; None while that does not tell."""
        state = facts[LOGS].entries.get(Log(pod.ref, self.container))
        if not isinstance(state, Known) or state.value.begins_later or state.value.start is None:
            return None
        return modes.of_start(state.value.start, facts[the_engine].image_version)

    def _status(self, pod: EnginePod) -> ContainerStatus | None:
        named = (each for each in pod.status.container_statuses if each.name == self.container)
        return next(named, None)

    @staticmethod
    def _ready(pod: EnginePod) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
