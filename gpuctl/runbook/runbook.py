"""A runbook: a target, guards and steps, with the words a person needs to decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import msgspec

from gpuctl.facts.fact import Argument, Fact, given, rules
from gpuctl.facts.kinds import Kind, Ref, Rule
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.guard import Guard
from gpuctl.runbook.records import Bounds, Run
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import uid_of_the_node


@dataclass(frozen=True, slots=True)
class Option:
    """A flag of a runbook. `default` tells its type; a tuple is a flag that may be repeated."""

    flag: str
    help: str
    default: bool | int | float | str | tuple[str, ...] = False
    required: bool = False

    @property
    def name(self) -> str:
        """Its key in OPTIONS: `delete_emptydir_data` of `--delete-emptydir-data`."""
        return self.flag.removeprefix("--").replace("-", "_")


@given()
def no_preconditions() -> Mapping[str, str]:
    return {}


@given()
def no_bounds() -> Bounds:
    return Bounds()


@given()
def no_effects() -> tuple[str, ...]:
    return ()


def _nothing_more(_target: str, _options: Mapping[str, Any]) -> Mapping[Argument[Any], Any]:
    return {}


def _no_way_back(_run: Run) -> Mapping[str, Any] | None:
    return None


@dataclass(frozen=True, eq=False)
class Runbook:
    """`about` is what `explain` shows. `back`: what undoing an unfinished run brings back, or that it can't.

    `preconditions` are what a plan rests on, as text by name: what differs when the plan is applied makes it
    stale. `bounds` limit what it may do to others. `effects` are lines that are shown before anybody decides.
    `arguments` are facts beyond target and options that its facts are given. `reverse`: the options of the
    plan that undoes a finished run, None if there is none. `spared` are facts without which a plan is made
    all the same, and says less; `unheeded` what facts that others share with it read on the way, and nothing
    of it rests on.
    """

    id: str
    title: str
    about: str
    target: str
    back: str
    guards: tuple[Guard, ...]
    steps: Fact[tuple[Step, ...]]
    step_types: tuple[type[Step], ...]
    kind: Kind = NodeView.of
    prefixed: Mapping[str, Kind] = field(default_factory=dict)  # other kinds of target, by what begins them
    options: tuple[Option, ...] = ()
    preconditions: Fact[Mapping[str, str]] = no_preconditions
    bounds: Fact[Bounds] = no_bounds
    effects: Fact[tuple[str, ...]] = no_effects
    target_uid: Fact[str] = uid_of_the_node
    arguments: Callable[[str, Mapping[str, Any]], Mapping[Argument[Any], Any]] = _nothing_more
    reverse: Callable[[Run], Mapping[str, Any] | None] = _no_way_back
    rules: frozenset[Rule] = frozenset()  # what its steps may write, over all options but those beneath
    rules_with: Mapping[str, frozenset[Rule]] = field(default_factory=dict)  # and what with such a flag alone
    spared: tuple[Fact[Any], ...] = ()
    unheeded: tuple[Fact[Any], ...] = ()
    default_target: str = ""  # the only one there is, where there is only one

    def ref(self, target: str) -> Ref:
        """The object that a target names: `NAME`, or `NAMESPACE/NAME` where its kind is in namespaces."""
        for prefix, kind in self.prefixed.items():
            if target.startswith(prefix):
                return _ref(kind, target.removeprefix(prefix))
        return _ref(self.kind, target)

    @property
    def in_namespaces(self) -> bool:
        """Whether some of its targets are."""
        return any(each.namespaced for each in (self.kind, *self.prefixed.values()))

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        """All that a plan is made of."""
        guards = (need for each in self.guards for need in each.needs)
        rest = (self.steps, self.preconditions, self.bounds, self.effects, self.target_uid)
        return tuple(dict.fromkeys((*guards, *rest)))

    @property
    def flags(self) -> tuple[Option, ...]:
        """Its options, and the overrides of guards that are no options of its own."""
        own = {option.flag for option in self.options}
        overrides = {
            guard.override: Option(guard.override, f"go on although not true: {guard.says}")
            for guard in self.guards
            if guard.override and guard.override not in own
        }
        return (*self.options, *overrides.values())

    def without_risks(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """These options but for overrides of guards: a risk that was taken once is not taken for ever."""
        overrides = {guard.override for guard in self.guards}
        taken = {option.name for option in self.flags if option.flag in overrides}
        return {name: each for name, each in options.items() if not (each is True and name in taken)}

    @property
    def reads(self) -> frozenset[Rule]:
        """The permissions that planning takes."""
        return rules(*self.needs)

    def step(self, data: Mapping[str, Any]) -> Step:
        """A step out of a journal. Raises msgspec.ValidationError."""
        kinds: Any = Union[self.step_types]  # noqa: UP007 - of types that are not known here
        step: Step = msgspec.convert(data, kinds)
        return step


def _ref(kind: Kind, target: str) -> Ref:
    namespace, _, name = target.partition("/") if kind.namespaced else ("", "", target)
    return Ref(kind, name, namespace)
