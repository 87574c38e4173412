"""Pods on which nothing rests are dropped as they are read, and no verdict is another for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuctl.audit.judge import judge
from gpuctl.checks.mig_consistency import CHECK
from gpuctl.facts.gather import Facts, gather
from gpuctl.facts.kinds import Ref
from gpuctl.nvidia.facts import PODS, GPU_nodes
from gpuctl.nvidia.involved import InvolvedPod
from gpuctl.nvidia.operands import OPERANDS
from gpuctl.nvidia.picture import pictures_of_nodes
from tests.builders.gpus import GpuCluster, cluster, pod, sliced
from tests.cluster.bed.simulated import gpu_node

MARKS = [dict([mark]) for operand in OPERANDS for mark in operand.marks]
RESOURCES = (
    "cpu",
    "nvidia.com/gpu",
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/mig-3g.40gb",
    "nvidia.com/A100-40GB-MIG-1g.5gb",
    "example.com/shared-mig",
    "amd.com/gpu",
    "rdma/hca",
)
VARIABLES = [
    {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
    {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
    {"name": "MIG_STRATEGY", "value": "single"},
]
DEVICE = {"name": "dev", "hostPath": {"path": "/dev/nvidia0"}}


def plain() -> dict[str, Any]:
    return {"name": "main", "image": "app:1", "resources": {"limits": {}}}


def labelled(item: dict[str, Any], labels: Mapping[str, str]) -> None:
    item["metadata"]["labels"] = dict(labels)


def asking(item: dict[str, Any], name: str, count: str, kind: str) -> None:
    spec = item["spec"]
    spec.setdefault(kind, [plain()])[0]["resources"]["limits"][name] = count


# What makes a pod matter, or only look like it.
FEATURES = st.one_of(
    st.just(partial(labelled, labels={"gpuctl.dev/helper": "probe", "gpuctl.dev/run": "r"})),
    st.sampled_from(MARKS).map(lambda labels: partial(labelled, labels=labels)),
    st.builds(
        lambda name, count, kind: partial(asking, name=name, count=count, kind=kind),
        st.sampled_from(RESOURCES),
        st.sampled_from(["0", "1", "2"]),
        st.sampled_from(["containers", "containers", "initContainers"]),
    ),
    st.sampled_from(VARIABLES).map(
        lambda variable: lambda item: item["spec"]["containers"][0].update(env=[variable])
    ),
    st.just(lambda item: item["spec"]["containers"][0].update(image="docker.io/library/busybox:1.37")),
    st.just(lambda item: item["spec"].update(resourceClaims=[{"name": "gpu"}])),
    st.just(lambda item: item["spec"].update(volumes=[DEVICE])),
    st.just(
        lambda item: item["spec"]["containers"][0].update(volumeMounts=[{"name": "dev", "mountPath": "/d"}])
    ),
)


@st.composite
def pods(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Pods of all sorts, on a GPU node, on another, and waiting."""
    made = []
    for number in range(draw(st.integers(0, 5))):
        node = draw(st.sampled_from(["gpu-1", "gpu-1", "gpu-1", "web-1", ""]))
        phase = draw(st.sampled_from(["Running", "Running", "Running", "Pending", "Succeeded", "Failed"]))
        item = pod(f"p{number}", node, containers=[plain()], status={"phase": phase})
        for feature in draw(st.lists(FEATURES, max_size=2)):
            feature(item)
        made.append(item)
    return made


HELD = '{{"Data":{{"PodDeviceEntries":[{}],"RegisteredDevices":{{}}}},"Checksum":1}}'
ENTRY = (
    '{{"PodUID":"uid-p{}","ContainerName":"main","ResourceName":"example.com/shared-mig",'
    '"DeviceIDs":{{"-1":["{}"]}},"AllocResp":""}}'
)


def scene(extra: Sequence[Mapping[str, Any]]) -> GpuCluster:
    """A GPU node whose kubelet has written down a device for every pod that asks for any: half are gone."""
    (gpu,) = sliced().state.gpus
    uuid = gpu.instances[0].compute_instances[0].uuid
    entries = [
        ENTRY.format(number, uuid if number % 2 else "MIG-gone")
        for number, each in enumerate(extra)
        if _asks(each)
    ]
    return cluster(
        sliced(),
        gpu_node("gpu-2", profiles=[None]),
        extra=tuple(extra),
        told={("gpu-1", "kubelet-devices"): HELD.format(",".join(entries))},
    )


def _asks(item: Mapping[str, Any]) -> bool:
    """The kubelet allocates devices for extended resources of which at least one is asked for."""
    containers = (*item["spec"]["containers"], *item["spec"].get("initContainers", ()))
    asked = [asked for each in containers for asked in each["resources"]["limits"].items()]
    return any("/" in name and count != "0" for name, count in asked)


def told(facts: Facts) -> object:
    """All that a person can be told."""
    judged = [judge(assertion, facts) for assertion in CHECK.assertions]
    return (
        [(each.verdict, each.looked, each.findings, each.reason) for each in judged],
        sorted(map(str, facts[pictures_of_nodes].entries.items())),
        facts[GPU_nodes],
        CHECK.learned and facts.state(CHECK.learned),
    )


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(extra=pods())
def test_no_verdict_is_another_without_the_pods_that_do_not_matter(extra: list[dict[str, Any]]) -> None:
    wanted = [*CHECK.needs, pictures_of_nodes, GPU_nodes]
    few = told(gather(wanted, scene(extra).reader, {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InvolvedPod, "relevant", True)
        all_of_them = told(gather(wanted, scene(extra).reader, {}))
    assert few == all_of_them


def test_of_a_large_cluster_few_pods_are_kept() -> None:
    web = [pod(f"web-{number}", "gpu-1", env={"PORT": "80"}) for number in range(500)]
    asking = pod("train", "gpu-1", asks={"nvidia.com/mig-1g.10gb": 1})
    facts = gather([PODS], cluster(sliced(), extra=(*web, asking)).reader, {})
    names = {ref.name for ref in facts[PODS].entries}
    assert "train" in names
    assert not {name for name in names if name.startswith("web-")}


def test_what_cannot_be_read_stays_unknown() -> None:
    broken = pod("broken", "gpu-1")
    broken["spec"]["containers"] = "none"
    facts = gather([PODS], cluster(sliced(), extra=(broken,)).reader, {})
    assert Ref(InvolvedPod.of, "broken", "team-a") in facts[PODS].entries
