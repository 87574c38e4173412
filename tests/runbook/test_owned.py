"""What somebody else keeps is not changed, and its patch is printed for where it belongs."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.facts.fact import Argument
from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import Deployment
from gpuctl.facts.state import Known, Unknown
from gpuctl.runbook.objects import cluster_wide, in_namespace, targeted
from gpuctl.runbook.owned import keepers, not_owned_elsewhere, only_printed, printed, to_be_applied
from gpuctl.runbook.target import OPTIONS, TARGET
from gpuctl.runbook.writer import Drop, Put, Test
from tests.memory import MemoryReader
from tests.runbook.drain.scenes import Object, owner_of

TARGETED = targeted(Deployment, in_namespace(Deployment.of))
GUARD = not_owned_elsewhere(TARGETED.now)
REF = Ref(Deployment.of, "llm", "serving")
OWNED: dict[str, Object] = {
    "a controller": {"ownerReferences": [owner_of("InferenceService", "chat")]},
    "Argo CD": {"annotations": {"argocd.argoproj.io/tracking-id": "apps:apps/Deployment:serving/llm"}},
    "Flux": {"labels": {"kustomize.toolkit.fluxcd.io/name": "serving"}},
    "a HelmRelease": {"labels": {"helm.toolkit.fluxcd.io/name": "serving"}},
    "Helm": {"annotations": {"meta.helm.sh/release-name": "llm"}},
    "an operator": {"labels": {"app.kubernetes.io/managed-by": "kserve-operator"}},
}
FREE: dict[str, Object] = {
    "nothing": {},
    "an owner that is no controller": {
        "ownerReferences": [{**owner_of("ConfigMap", "x"), "controller": False}]
    },
    "a chart's name alone": {"labels": {"app.kubernetes.io/instance": "llm"}},
    "by hand": {"labels": {"app.kubernetes.io/managed-by": "kubectl"}},
}


def deployment(**about: Any) -> Object:
    metadata = {"name": "llm", "namespace": "serving", "uid": "u-1", **about}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {}}


def against(about: Object, **options: Any) -> list[str]:
    arguments: dict[Argument[Any], Any] = {TARGET: "serving/llm", OPTIONS: options}
    facts = gather(GUARD.needs, MemoryReader([deployment(**about)]), arguments)
    found = list(GUARD.blockers(facts))
    assert all(each.override == "--although-owned" for each in found)
    return [each.message for each in found]


@pytest.mark.parametrize("about", OWNED.values(), ids=OWNED)
def test_what_somebody_keeps_is_refused_and_its_patch_is_not(about: Object) -> None:
    (message,) = against(about)
    assert message.startswith("Deployment serving/llm is kept by ")
    assert not against(about, patch_only=True)


@pytest.mark.parametrize("about", FREE.values(), ids=FREE)
def test_what_nobody_keeps_is_not(about: Object) -> None:
    assert not against(about)


def test_the_patch_is_a_command_and_names_its_place() -> None:
    changes = (Test("/spec/replicas", 1), Put("/spec/replicas", 2), Drop("/spec/paused"))
    facts = gather([TARGETED.now], MemoryReader([deployment(**OWNED["Helm"])]), {TARGET: "serving/llm"})
    metadata = facts[TARGETED.now].metadata
    patch, place = printed(REF, changes, metadata)
    assert patch == (
        "the patch: kubectl patch -n serving deployments.apps/llm --type=json -p "
        '\'[{"op": "test", "path": "/spec/replicas", "value": 1}, '
        '{"op": "add", "path": "/spec/replicas", "value": 2}, {"op": "remove", "path": "/spec/paused"}]\''
    )
    assert place.startswith("it belongs into the values of that Helm release")
    assert len(keepers(metadata)) == 1


@pytest.mark.parametrize(("options", "blocked"), [({}, False), ({"patch_only": True}, True)])
def test_a_patch_that_is_only_printed_is_never_applied(options: dict[str, Any], blocked: bool) -> None:
    facts = gather(to_be_applied.needs, MemoryReader([]), {OPTIONS: options})
    assert bool(list(to_be_applied.blockers(facts))) is blocked
    assert only_printed(options) is blocked


# Targets


@pytest.mark.parametrize("name", ["", "llm", "serving/", "/llm", "a/b/c", "serving/other"])
def test_a_target_that_is_not_there_or_not_named_well(name: str) -> None:
    facts = gather([TARGETED.now, TARGETED.uid], MemoryReader([deployment()]), {TARGET: name})
    assert isinstance(facts.state(TARGETED.now), Unknown)
    assert facts.state(TARGETED.uid) == Known("")


def test_a_target_by_its_namespace_and_name() -> None:
    facts = gather([TARGETED.now, TARGETED.uid], MemoryReader([deployment()]), {TARGET: "serving/llm"})
    assert facts[TARGETED.now].ref == REF
    assert facts[TARGETED.uid] == "u-1"


def test_places() -> None:
    assert in_namespace(Deployment.of, "deployment/")("deployment/serving/llm") == REF
    assert in_namespace(Deployment.of, "deployment/")("serving/llm") is None
    assert cluster_wide(Deployment.of)("a") == Ref(Deployment.of, "a")
    assert cluster_wide(Deployment.of)("a/b") is None
