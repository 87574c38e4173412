"""Objects that somebody else keeps as they are: a controller that owns them, GitOps, or Helm.

A change of one is undone at their next look, or is forgotten where everybody thinks it is written down. So a
runbook refuses it unless told otherwise, and can print the patch for the place where it belongs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import Fact, given
from gpuctl.facts.kinds import Kind, Meta, Ref, View
from gpuctl.runbook.guard import Guard, blocks, guard
from gpuctl.runbook.plan import Plan
from gpuctl.runbook.runbook import Option
from gpuctl.runbook.target import OPTIONS
from gpuctl.runbook.writer import Change, Drop, Put, Test

ALTHOUGH_OWNED: Final = "--although-owned"
PATCH_ONLY: Final = Option("--patch-only", "print the patch and where it belongs, and change nothing")


@dataclass(frozen=True, slots=True)
class Keeper:
    """Who keeps an object as it is. `place`: where the change belongs instead."""

    says: str
    place: str

    def __str__(self) -> str:
        return self.says


# By label or annotation: who sets it, and where what it keeps is written.
_MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "argocd.argoproj.io/tracking-id": ("Argo CD", "the source of that Argo CD application"),
    "argocd.argoproj.io/instance": ("Argo CD", "the source of that Argo CD application"),
    "kustomize.toolkit.fluxcd.io/name": ("Flux", "the repository of that Flux Kustomization"),
    "helm.toolkit.fluxcd.io/name": ("Flux", "the values of that Flux HelmRelease"),
    "meta.helm.sh/release-name": ("Helm", "the values of that Helm release"),
    "fleet.cattle.io/bundle-id": ("Fleet", "the repository of that Fleet bundle"),
    "objectset.rio.cattle.io/owner-name": ("Rancher", "what Rancher deploys it from"),
    "configmanagement.gke.io/managed": ("Config Sync", "the repository of Config Sync"),
    "config.k8s.io/owning-inventory": ("kpt or Config Sync", "the package of that inventory"),
    "olm.owner": ("the Operator Lifecycle Manager", "the subscription or the operator's own resource"),
}
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_BY_HAND: Final = frozenset({"", "gpuctl", "kubectl", "kustomize"})


def keepers(metadata: Meta) -> tuple[Keeper, ...]:
    """Who keeps this object as it is; none for what people change by hand."""
    return tuple(_keepers(metadata))


def _keepers(metadata: Meta) -> Iterator[Keeper]:
    for owner in metadata.owner_references:
        if owner.controller:
            yield Keeper(f"its owner {owner.kind} {owner.name}", f"{owner.kind} {owner.name}")
    marks, seen = {**metadata.labels, **metadata.annotations}, set()
    for mark, (who, place) in _MARKS.items():
        if mark in marks and who not in seen:
            seen.add(who)
            yield Keeper(f"{who} ({mark}={marks[mark]})", place)
    manager = metadata.labels.get(_MANAGED_BY, "")
    if manager not in _BY_HAND and manager not in seen:
        yield Keeper(f"{manager} ({_MANAGED_BY}={manager})", f"where {manager} has it from")


@given()
def in_any_case() -> bool:
    return True


def not_owned_elsewhere(target: Fact[View], when: Fact[bool] = in_any_case) -> Guard:
    """Refuses to change what somebody else keeps as it is. For the patch alone it does not matter. `when`:
    this time it is changed for longer than the run lasts."""

    @guard("nobody else keeps the object as it is", given(target, OPTIONS, when), ALTHOUGH_OWNED)
    def not_owned_elsewhere(found: View, options: Mapping[str, Any], changed: bool) -> Iterator[Finding]:
        for keeper in keepers(found.metadata) if changed and not only_printed(options) else ():
            yield blocks(
                found.ref,
                f"{found.ref} is kept by {keeper}: a change here is undone by it, or lost at its next change",
                remedy=f"change {keeper.place}: {PATCH_ONLY.flag} prints the patch",
            )

    return not_owned_elsewhere


# Only printed


def only_printed(options: Mapping[str, Any]) -> bool:
    """Whether the person wants the patch and no change."""
    return options.get("patch_only") is True


@guard("it is to be applied, not only to be printed", given(OPTIONS))
def to_be_applied(options: Mapping[str, Any]) -> Iterator[Finding]:
    """`gpuctl plan … --patch-only` shows the patch; a plan of that kind is never applied."""
    if only_printed(options):
        yield blocks(
            _A_PLAN,
            f"with {PATCH_ONLY.flag} the patch is only printed",
            look="the patch above",
            remedy=f"put it where it belongs, or plan without {PATCH_ONLY.flag}",
        )


_A_PLAN: Final = Ref(Kind("", ("v1",), "Plan", "plans", namespaced=False), "with a patch alone")


def is_only_printed(plan: Plan) -> bool:
    """Whether nothing speaks against a plan but that its patch is only to be printed."""
    return bool(plan.blockers) and {each.guard for each in plan.blockers} == {to_be_applied.id}


def printed(ref: Ref, changes: Sequence[Change], metadata: Meta) -> tuple[str, ...]:
    """The patch in words for a person who puts it where it belongs."""
    operations = json.dumps([_operation(each) for each in changes])
    command = f"kubectl patch {ref.kubectl} --type=json -p {shlex.quote(operations)}"
    places = [f"it belongs into {keeper.place}: {keeper}" for keeper in keepers(metadata)]
    return (
        f"the patch: {command}",
        *(places or ["nobody else keeps the object: it may be applied as it is"]),
    )


def _operation(change: Change) -> Mapping[str, Any]:
    match change:
        case Test(path, value):
            return {"op": "test", "path": path, "value": value}
        case Put(path, value):
            return {"op": "add", "path": path, "value": value}
        case Drop(path):
            return {"op": "remove", "path": path}
