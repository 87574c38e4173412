"""Whole clusters with GPU nodes: each fault has its code, and the same state slightly changed is silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuctl.audit.judge import Verdict, judge
from gpuctl.checks.mig_consistency import CHECK
from gpuctl.facts.gather import gather
from gpuctl.facts.nodes import Output
from gpuctl.facts.state import Inapplicable, Reason, Unknown
from tests.builders.gpus import (
    COMMANDS,
    CONFIG,
    OPERANDS,
    OPERATOR,
    SEVEN,
    GpuCluster,
    answers,
    cluster,
    config_map,
    found,
    judgements,
    messages,
    operand_pod,
    pod,
    policy,
    sliced,
)
from tests.cluster.bed.simulated import GpuNode, gpu_node
from tests.cluster.standins import faults
from tests.cluster.standins.state import A30, A100, H100, V100, Gpu
from tests.memory import A_MOMENT

BALANCED = ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")
PREFIX = "nvidia.com/"


def written(minutes: float, *labels: str, manager: str = "nvidia-mig-manager") -> list[dict[str, Any]]:
    """managedFields of somebody who wrote these labels so many minutes ago."""
    time = (A_MOMENT - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{PREFIX}{name}": {} for name in labels}}}
    return [
        {
            "manager": manager,
            "operation": "Update",
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
    ]


def labelled(node: GpuNode, **labels: str | None) -> GpuNode:
    """The node with other labels; `__` stands for a dot, `_` for a hyphen."""
    names = {name.replace("__", ".").replace("_", "-"): text for name, text in labels.items()}
    return replace(node, extra={**node.extra, **{PREFIX + name: text for name, text in names.items()}})


def offering(node: GpuNode, **counts: int | None) -> GpuNode:
    """The node with another capacity, `gpu` and `mig_1g__10gb`."""
    names = {name.replace("__", ".").replace("_", "-"): count for name, count in counts.items()}
    return replace(node, resources={PREFIX + name: count for name, count in names.items()})


def silicon(node: GpuNode, *gpus: Gpu) -> GpuNode:
    """A node whose GPUs are others than its labels and capacity say."""
    state = replace(node.state, gpus=gpus)
    kept_labels: dict[str, str | None] = dict(node.labels)
    kept = {name: int(count) for name, count in node.capacity.items() if name.startswith(PREFIX)}
    fresh = replace(node, state=state)
    extra = {name: kept_labels.get(name) for name in {*fresh.labels, *kept_labels} if name.startswith(PREFIX)}
    gone = {name: None for name in fresh.capacity if name.startswith(PREFIX) and name not in kept}
    return replace(fresh, extra=extra, resources={**gone, **kept})


def h100(mig: tuple[str, ...] | None = SEVEN, index: int = 0, **changes: Any) -> Gpu:
    return replace(H100.gpu(index, mig, node="gpu-1"), **changes)


def single(**changes: Any) -> GpuNode:
    return gpu_node("gpu-1", strategy="single", **{"profiles": [SEVEN], "config": "all-1g.10gb", **changes})


def mounting(path: str) -> dict[str, Any]:
    """A pod with a device of the host's."""
    mount = {"name": "device", "mountPath": path}
    made = pod("trainer", "gpu-1", containers=[{"name": "main", "image": "app:1", "volumeMounts": [mount]}])
    made["spec"]["volumes"] = [{"name": "device", "hostPath": {"path": path}}]
    return made


INVALID = gpu_node("gpu-1", strategy="single", profiles=[SEVEN, None], config="first-only")
WEDGED = labelled(
    sliced(),
    mig__config__state="pending",
    gpu__deploy__device_plugin="paused-for-mig-change",
    gpu__deploy__gpu_feature_discovery="paused-for-mig-change",
)
UPGRADED = labelled(sliced(), gpu__deploy__device_plugin="paused-for-driver-upgrade")
TWO_OFF = gpu_node("gpu-1", profiles=[None, None])
ME = ("1g.10gb+me", *["1g.10gb"] * 6)

# what is wrong, the codes that are found, and the same slightly changed
CASES: dict[str, tuple[GpuCluster, set[str], GpuCluster]] = {
    "MIG001 failed": (
        cluster(labelled(sliced(), mig__config__state="failed")),
        {"MIG001"},
        cluster(labelled(sliced(), mig__config__state="success")),
    ),
    "MIG002 wedged": (
        cluster(
            WEDGED,
            written=written(40, "mig.config.state", "gpu.deploy.device-plugin"),
            without=frozenset({"device-plugin"}),
        ),
        {"MIG002"},
        cluster(
            WEDGED,
            written=written(8, "mig.config.state", "gpu.deploy.device-plugin"),
            without=frozenset({"device-plugin"}),
        ),
    ),
    "MIG002 of unknown age": (
        cluster(labelled(sliced(), mig__config__state="pending", gpu__product=None)),
        {"MIG002"},
        cluster(
            labelled(sliced(), mig__config__state="pending", gpu__product=None),
            written=written(2, "mig.config.state"),
        ),
    ),
    "MIG003 rebooting": (
        cluster(labelled(sliced(), mig__config__state="rebooting"), written=written(31, "mig.config.state")),
        {"MIG003"},
        cluster(labelled(sliced(), mig__config__state="rebooting"), written=written(29, "mig.config.state")),
    ),
    "MIG004 paused after an aborted upgrade": (
        cluster(UPGRADED, written=written(50, "gpu.deploy.device-plugin", manager="driver-manager")),
        {"MIG004"},
        cluster(UPGRADED, written=written(5, "gpu.deploy.device-plugin", manager="driver-manager")),
    ),
    "MIG005 and MIG014 one of two sliced": (
        cluster(INVALID),
        {"MIG005", "MIG014", "MIG015"},
        cluster(gpu_node("gpu-1", strategy="single", profiles=[SEVEN, SEVEN], config="all-1g.10gb")),
    ),
    "MIG006 labels of before": (
        cluster(labelled(sliced(), mig_1g__10gb__count="2")),
        {"MIG006"},
        cluster(labelled(sliced(), mig_1g__10gb__count="7")),
    ),
    "MIG006 another model": (
        cluster(labelled(TWO_OFF, gpu__product="NVIDIA-A100-SXM4-80GB")),
        {"MIG006"},
        cluster(labelled(TWO_OFF, gpu__product="H100-80GB-HBM3")),  # as old releases write it
    ),
    "MIG007 slices that are not advertised": (
        cluster(offering(sliced(), mig_1g__10gb=0)),
        {"MIG007"},
        cluster(offering(sliced(), mig_1g__10gb=7)),
    ),
    "MIG007 by labels alone": (
        cluster(offering(sliced(), mig_1g__10gb=3), probed=False),
        {"MIG007"},
        cluster(offering(sliced(), mig_1g__10gb=7), probed=False),
    ),
    "MIG008 unhealthy": (
        cluster(gpu_node("gpu-1", profiles=[None] * 8), allocatable={"nvidia.com/gpu": 7}),
        {"MIG008"},
        cluster(gpu_node("gpu-1", profiles=[None] * 8), allocatable={"nvidia.com/gpu": 8}),
    ),
    "MIG009 names of before": (
        cluster(offering(sliced(), mig_2g__20gb=3)),
        {"MIG009"},
        cluster(offering(sliced(), mig_2g__20gb=0)),
    ),
    "MIG010 mode pending": (
        cluster(silicon(TWO_OFF, h100(None), h100(None, 1, mig_pending="Enabled"))),
        {"MIG010"},
        cluster(silicon(TWO_OFF, h100(None), h100(None, 1))),
    ),
    "MIG011 empty": (
        cluster(gpu_node("gpu-1", profiles=[[]], config="all-balanced")),
        {"MIG011", "MIG015"},
        cluster(gpu_node("gpu-1", profiles=[[]], config="all-enabled")),
    ),
    "MIG012 without compute instance": (
        cluster(gpu_node("gpu-1", profiles=[["0c.3g.40gb"]], config="custom")),
        {"MIG012"},
        cluster(gpu_node("gpu-1", profiles=[["3g.40gb"]], config="custom")),
    ),
    "MIG013 a part of its instance": (
        cluster(gpu_node("gpu-1", profiles=[["1c.3g.40gb"]], config="custom")),
        {"MIG013"},
        cluster(gpu_node("gpu-1", profiles=[["3g.40gb"]], config="custom")),
    ),
    "MIG014 labels of another strategy": (
        cluster(
            sliced(),
            without=frozenset({"device-plugin"}),
            extra=(
                pod(
                    "plugin",
                    "gpu-1",
                    namespace=OPERATOR,
                    labels={"app": "nvidia-device-plugin-daemonset"},
                    env={"MIG_STRATEGY": "single"},
                ),
            ),
        ),
        {"MIG014"},
        cluster(
            sliced(),
            without=frozenset({"device-plugin"}),
            extra=(
                pod(
                    "plugin",
                    "gpu-1",
                    namespace=OPERATOR,
                    labels={"app": "nvidia-device-plugin-daemonset"},
                    env={"MIG_STRATEGY": "mixed"},
                ),
            ),
        ),
    ),
    "MIG015 success over other hardware": (
        cluster(sliced(config="all-3g.40gb")),
        {"MIG015"},
        cluster(sliced(config="all-1g.10gb")),
    ),
    "MIG015 a GPU that is not covered": (
        cluster(gpu_node("gpu-1", profiles=[SEVEN, None], config="first-only")),
        {"MIG015"},
        cluster(gpu_node("gpu-1", profiles=[SEVEN], config="first-only")),
    ),
    "MIG015 media extensions": (
        cluster(sliced(config="with-media")),
        {"MIG015"},
        cluster(gpu_node("gpu-1", profiles=[ME], config="with-media")),
    ),
    "MIG016 no such name": (
        cluster(
            labelled(sliced(), mig__config="all-1g.12gb", mig__config__state="pending"),
            written=written(1, "mig.config.state"),
        ),
        {"MIG016"},
        cluster(
            labelled(sliced(), mig__config="all-1g.10gb", mig__config__state="pending"),
            written=written(1, "mig.config.state"),
        ),
    ),
    "MIG017 the profile of another card": (
        cluster(gpu_node("gpu-1", profiles=[[]], config="all-1g.5gb")),
        {"MIG011", "MIG017"},
        cluster(gpu_node("gpu-1", model=A100, profiles=[["1g.5gb"] * 7], config="all-1g.5gb")),
    ),
    "MIG018 labels by hand": (
        cluster(labelled(gpu_node("gpu-1", strategy="none", profiles=[None, None]), mig_1g__5gb__count="7")),
        {"MIG018"},
        cluster(gpu_node("gpu-1", strategy="none", profiles=[None, None])),
    ),
    "MIG019 no manager": (
        cluster(sliced(), without=frozenset({"mig-manager"})),
        {"MIG019"},
        cluster(gpu_node("gpu-1", profiles=[None]), without=frozenset({"mig-manager"})),
    ),
    "MIG020 seven of eight": (
        cluster(
            silicon(gpu_node("gpu-1", profiles=[None] * 8), *(h100(None, index) for index in range(7))),
        ),
        {"MIG020", "MIG007"},
        cluster(gpu_node("gpu-1", profiles=[None] * 8)),
    ),
    "MIG020 a GPU on the bus alone": (
        cluster(
            gpu_node("gpu-1", profiles=[None]),
            told={("gpu-1", "pci"): "0000:1b:00.0 0302: 10de:2330\n0000:2d:00.0 0302: 10de:2330 (rev a1)\n"},
        ),
        {"MIG020"},
        cluster(
            gpu_node("gpu-1", profiles=[None]),
            told={("gpu-1", "pci"): "0000:1b:00.0 0302: 10de:2330\n0000:07:00.0 0680: 10de:22a3\n"},
        ),
    ),
    "MIG021 no driver": (
        cluster(sliced().failing(faults.DRIVER_DOWN)),
        {"MIG021"},
        cluster(sliced().failing(faults.EXIT_6)),
    ),
    "MIG022 a vanished device": (
        cluster(
            sliced(),
            extra=(pod("infer", "gpu-1", asks={"nvidia.com/mig-1g.10gb": 1}),),
            told={
                ("gpu-1", "kubelet-devices"): '{"Data":{"PodDeviceEntries":[{"PodUID":"uid-infer",'
                '"ContainerName":"main","ResourceName":"nvidia.com/mig-1g.10gb","DeviceIDs":{"-1":["MIG-gone"]},'
                '"AllocResp":""}],"RegisteredDevices":{}},"Checksum":1}'
            },
        ),
        {"MIG022"},
        cluster(
            sliced(),
            extra=(pod("infer", "gpu-1", asks={"nvidia.com/mig-1g.10gb": 1}),),
            told={
                ("gpu-1", "kubelet-devices"): '{"Data":{"PodDeviceEntries":[{"PodUID":"uid-of-a-dead-pod",'
                '"ContainerName":"main","ResourceName":"nvidia.com/mig-1g.10gb","DeviceIDs":{"-1":["MIG-gone"]},'
                '"AllocResp":""}],"RegisteredDevices":{}},"Checksum":1}'
            },
        ),
    ),
    "MIG022 a resource that is gone": (
        cluster(sliced(), extra=(pod("train", "gpu-1", asks={"nvidia.com/mig-3g.40gb": 1}),)),
        {"MIG022"},
        cluster(sliced(), extra=(pod("train", "gpu-1", asks={"nvidia.com/mig-1g.10gb": 1}),)),
    ),
    "MIG023 seen and not asked for": (
        cluster(sliced(), extra=(pod("notebook", "gpu-1", env={"NVIDIA_VISIBLE_DEVICES": "all"}),)),
        {"MIG023"},
        cluster(sliced(), extra=(pod("notebook", "gpu-1", env={"NVIDIA_VISIBLE_DEVICES": "void"}),)),
    ),
    "MIG023 mounted and not asked for": (
        cluster(sliced(), extra=(mounting("/dev/nvidia0"),)),
        {"MIG023"},
        cluster(sliced(), extra=(mounting("/dev/fuse"),)),
    ),
    "MIG024 MPS on MIG": (
        cluster(labelled(sliced(), mig_1g__10gb__sharing_strategy="mps", mps__capable="true")),
        {"MIG024"},
        cluster(
            offering(
                labelled(sliced(), mig_1g__10gb__sharing_strategy="time-slicing", mig_1g__10gb__replicas="2"),
                mig_1g__10gb=14,
            )
        ),
    ),
    "MIG030 no device plugin": (
        cluster(sliced(), without=frozenset({"device-plugin"})),
        {"MIG030"},
        cluster(
            sliced(),
            without=frozenset({"device-plugin"}),
            extra=(operand_pod("device-plugin", "gpu-1"),),
        ),
    ),
    "MIG030 a plugin that is not ready": (
        cluster(
            sliced(),
            without=frozenset({"device-plugin"}),
            extra=(
                operand_pod(
                    "device-plugin",
                    "gpu-1",
                    containerStatuses=[{"name": "nvidia-device-plugin", "ready": False, "restartCount": 12}],
                ),
            ),
        ),
        {"MIG030"},
        cluster(
            sliced(), without=frozenset({"device-plugin"}), extra=(operand_pod("device-plugin", "gpu-1"),)
        ),
    ),
    "MIG031 not looked again": (
        cluster(labelled(sliced(), gfd__timestamp="1700000000"), written=written(60, "mig.config.state")),
        {"MIG031"},
        cluster(labelled(sliced(), gfd__timestamp="1796028900"), written=written(60, "mig.config.state")),
    ),
    "MIG032 asked for and not offered": (
        cluster(sliced(), extra=(pod("waiting", "", asks={"nvidia.com/A100-40GB-MIG-1g.5gb": 1}),)),
        {"MIG032"},
        cluster(sliced(), extra=(pod("waiting", "", asks={"nvidia.com/mig-1g.10gb": 1}),)),
    ),
    "MIG033 more than it has": (
        cluster(
            replace(
                sliced(),
                state=replace(sliced().state, gpus=(H100.gpu(0, SEVEN, node="gpu-1", used={"9": 12000}),)),
            )
        ),
        {"MIG033"},
        cluster(
            replace(
                sliced(),
                state=replace(sliced().state, gpus=(H100.gpu(0, SEVEN, node="gpu-1", used={"9": 9984}),)),
            )
        ),
    ),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case)
def test_each_fault_is_found_by_its_code_and_nothing_else(case: str) -> None:
    bad, codes, _ = CASES[case]
    assert set(found(bad)) == codes, found(bad)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case)
def test_the_same_state_slightly_changed_is_silent(case: str) -> None:
    _, _, good = CASES[case]
    assert found(good) == {}


HEALTHY = {
    "none": cluster(gpu_node("gpu-1", strategy="none", profiles=[None] * 8)),
    "none with MIG on": cluster(gpu_node("gpu-1", strategy="none", profiles=[SEVEN])),
    "single": cluster(single()),
    "single without MIG": cluster(gpu_node("gpu-1", strategy="single", profiles=[None] * 4)),
    "mixed, two of eight sliced": cluster(
        gpu_node("gpu-1", profiles=[SEVEN, SEVEN, *[None] * 6], config="two-of-eight")
    ),
    "balanced": cluster(gpu_node("gpu-1", profiles=[BALANCED] * 8)),
    "A30": cluster(gpu_node("gpu-1", model=A30, profiles=[["2g.12gb", "1g.6gb", "1g.6gb"]], config="a30")),
    "not capable": cluster(gpu_node("gpu-1", model=V100, profiles=[None] * 4)),
    "time-slicing": cluster(
        offering(
            labelled(
                gpu_node("gpu-1", profiles=[None] * 2),
                gpu__replicas="4",
                gpu__sharing_strategy="time-slicing",
                gpu__product="NVIDIA-H100-80GB-HBM3-SHARED",
            ),
            gpu=8,
        )
    ),
    "time-slicing, renamed": cluster(
        offering(
            labelled(
                gpu_node("gpu-1", profiles=[None] * 2),
                gpu__replicas="8",
                gpu__sharing_strategy="time-slicing",
            ),
            gpu=0,
            gpu__shared=16,
        )
    ),
    "zeros": cluster(offering(sliced(), mig_2g__20gb=0, mig_3g__40gb=0)),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_nodes_are_silent(case: str) -> None:
    results = judgements(HEALTHY[case])
    assert messages(results.values(), info=True) == {}
    assert {result.verdict for result in results.values()} <= {
        Verdict.PASS,
        Verdict.NOT_APPLICABLE,
        Verdict.NOT_PROVEN,
    }


def test_without_a_look_into_the_node_its_hardware_is_not_proven_and_the_rest_is_judged() -> None:
    results = judgements(cluster(labelled(sliced(), mig__config__state="failed"), probed=False))
    assert results["carried-out"].verdict is Verdict.FAIL
    assert results["true-capacity"].verdict is Verdict.NOT_PROVEN
    assert results["kept-promises"].verdict is Verdict.PASS


def test_a_node_that_is_not_ready_is_judged_by_what_the_api_shows() -> None:
    down = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-30T09:00:00Z"}]
    of = cluster(labelled(sliced(), mig__config__state="failed"), conditions=down)
    unasked = of.with_(told={key: Unknown(Reason.NOT_ASKED, "not Ready") for key in answers(sliced())})
    results = judgements(unasked)
    assert results["true-capacity"].verdict is Verdict.NOT_PROVEN
    assert results["carried-out"].verdict is Verdict.FAIL


def test_a_driver_that_does_not_answer_makes_nothing_green() -> None:
    results = judgements(cluster(sliced().failing(faults.DRIVER_DOWN)))
    passed = {name for name, result in results.items() if result.verdict is Verdict.PASS}
    assert not passed & {"visible-gpus", "modes-in-effect", "whole-devices", "true-labels", "true-capacity"}


@pytest.mark.parametrize(
    ("fault", "severity"),
    [
        (faults.GPU_LOST, "error"),
        (faults.VERSION_MISMATCH, "warning"),
        (faults.NVML_UNKNOWN, "warning"),
        (faults.NO_DEVICES_L, "error"),
        (faults.GARBAGE, "error"),
        (faults.SHELL_NOT_FOUND, "warning"),
    ],
)
def test_errors_are_told_by_class_and_a_bad_container_is_no_gpu_fault(fault: Any, severity: str) -> None:
    results = judgements(cluster(sliced().failing(fault)))
    findings = [finding for result in results.values() for finding in result.findings]
    assert {finding.code.id for finding in findings} <= {"MIG020", "MIG021"}
    assert {finding.weight.value for finding in findings} == {severity}


def test_permissions_missing_for_media_attributes_cost_only_these() -> None:
    node = gpu_node("gpu-1", profiles=[ME], config="with-media").failing(faults.LGI_PERMISSIONS)
    assert set(found(cluster(node))) == {"MIG021"}


def test_what_stands_only_once_does_not_count() -> None:
    bad, good = cluster(offering(sliced(), mig_1g__10gb=6)), cluster(sliced())
    assert set(found(bad)) == {"MIG007"}
    assert set(found(bad.with_(later=bad))) == {"MIG007"}
    assert found(bad.with_(later=good)) == {}


def test_evidence_says_how_often_was_read() -> None:
    bad = cluster(offering(sliced(), mig_1g__10gb=6))
    for of, said in ((bad, "one read"), (bad.with_(later=bad), "two reads 10 s apart show the same")):
        findings = judgements(of)["true-capacity"].findings
        assert said in [each.observed for each in findings[0].evidence]


def test_six_minutes_after_a_change_nothing_is_held_against_capacity() -> None:
    bad = offering(sliced(), mig_1g__10gb=0)
    assert found(cluster(bad, written=written(5, "mig.config.state"))) == {}
    assert set(found(cluster(bad, written=written(7, "mig.config.state")))) >= {"MIG007"}


def test_other_owners_are_told_and_not_judged() -> None:
    hami = replace(offering(sliced(), gpu=10), name="gpu-1")
    of = cluster(hami)
    items = of.items
    items[0]["metadata"]["annotations"] = {"hami.io/node-nvidia-register": "x"}
    reader = of.reader
    reader.items = items
    facts = gather(CHECK.needs, reader, {})
    said = messages((judge(each, facts) for each in CHECK.assertions), info=True)
    assert set(said) == {"MIG026"}


def test_gke_is_judged_by_its_own_rules() -> None:
    node = gpu_node("gpu-1", strategy="none", profiles=[SEVEN])
    bare = replace(
        node,
        extra={name: None for name in node.labels if name.startswith(PREFIX)}
        | {
            "cloud.google.com/gke-gpu-partition-size": "1g.10gb",
            "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
        },
    )
    assert found(cluster(offering(bare, gpu=7))) == {}
    assert set(found(cluster(offering(bare, gpu=6)))) == {"MIG007"}


def test_a_cluster_without_gpus_is_not_applicable() -> None:
    results = judgements(cluster())
    assert results["carried-out"].verdict is Verdict.NOT_APPLICABLE


def test_a_configuration_of_the_operator_is_found_by_the_node_s_name() -> None:
    of = cluster(labelled(sliced(), mig__config="all-special"))
    own = config_map(CONFIG.replace("all-1g.10gb", "all-special"), "gpu-1-mig-config")
    assert set(found(of)) == {"MIG016"}
    assert found(of.with_(extra=(own,))) == {}


def test_an_output_that_is_cut_off_is_not_half_read() -> None:
    whole = answers(sliced())[("gpu-1", "nvidia-smi-L")]
    cut = Output(whole.stdout[: len(whole.stdout) // 2])
    results = judgements(cluster(sliced(), told={("gpu-1", "nvidia-smi-L"): cut}))
    assert {finding.code.id for result in results.values() for finding in result.findings} == {"MIG021"}
    assert results["true-capacity"].verdict is Verdict.UNKNOWN


def listed_alone(node: GpuNode) -> GpuCluster:
    """A cluster of which a person kept the answer to `nvidia-smi -L` and no other."""
    untold = Unknown(Reason.NOT_ASKED, "the snapshot does not hold it")
    others = [command for command in COMMANDS if command != "nvidia-smi-L"]
    return cluster(node, told={(node.name, command): untold for command in others})


@pytest.mark.parametrize(
    "node",
    [
        gpu_node("gpu-1", profiles=[[]], config="all-balanced"),
        gpu_node("gpu-1", profiles=[["0c.3g.40gb"]], config="custom"),
        gpu_node("gpu-1", strategy="single", profiles=[SEVEN, []], config="all-1g.10gb"),
        gpu_node("gpu-1", profiles=[None]),
    ],
    ids=["on and empty", "without compute instances", "one of two empty", "off"],
)
def test_a_gpu_that_is_only_listed_is_neither_whole_nor_empty(node: GpuNode) -> None:
    results = judgements(listed_alone(node))
    for name in ("modes-in-effect", "whole-devices", "true-capacity"):
        assert results[name].verdict is Verdict.NOT_PROVEN, name


def test_devices_alone_tell_no_pending_mode_and_no_instances_beside_them() -> None:
    results = judgements(listed_alone(sliced()))
    assert results["true-capacity"].verdict is Verdict.PASS
    assert results["modes-in-effect"].verdict is Verdict.NOT_PROVEN
    assert results["whole-devices"].verdict is Verdict.NOT_PROVEN


def undescribed(node: GpuNode) -> GpuNode:
    """A node without GPU feature discovery and operator, as the device plugin alone leaves it."""
    unlabelled = {name: None for name in node.labels if name.startswith(PREFIX)}
    return replace(node, extra={**unlabelled, f"{PREFIX}gpu.present": "true"})


WHOLE = gpu_node("gpu-1", strategy="none", profiles=[None, None])


@pytest.mark.parametrize(
    ("node", "verdict"),
    [
        (undescribed(sliced()), Verdict.NOT_PROVEN),
        (offering(undescribed(WHOLE), gpu=8), Verdict.NOT_PROVEN),
        (offering(undescribed(WHOLE), gpu=0, gpu__shared=8), Verdict.NOT_PROVEN),
        (undescribed(WHOLE), Verdict.PASS),
        (offering(undescribed(WHOLE), gpu=0), Verdict.FAIL),
    ],
    ids=["by strategy mixed", "four times", "renamed", "as they are", "nothing at all"],
)
def test_how_devices_are_offered_is_no_guess(node: GpuNode, verdict: Verdict) -> None:
    assert judgements(cluster(node))["true-capacity"].verdict is verdict


def test_a_thousand_devices_are_written_as_1k() -> None:
    shared = offering(labelled(WHOLE, gpu__replicas="500", gpu__sharing_strategy="time-slicing"), gpu=1000)
    of = cluster(shared)
    items = of.items
    for part in ("capacity", "allocatable"):
        items[0]["status"][part]["nvidia.com/gpu"] = "1k"
    reader = of.reader
    reader.items = items
    facts = gather(CHECK.needs, reader, {})
    assert messages((judge(each, facts) for each in CHECK.assertions), info=False) == {}


def test_labels_that_count_one_model_promise_nothing_of_another() -> None:
    two = labelled(WHOLE, gpu__count="1")
    assert judgements(cluster(two, probed=False))["kept-promises"].verdict is Verdict.NOT_PROVEN
    lost = offering(labelled(WHOLE, gpu__count="4"), gpu=2)
    assert judgements(cluster(lost, probed=False))["kept-promises"].verdict is Verdict.FAIL


def test_without_times_nobody_knows_whether_feature_discovery_looked_again() -> None:
    assert judgements(cluster(sliced()))["rediscovered"].verdict is Verdict.NOT_PROVEN
    timed = cluster(labelled(sliced(), gfd__timestamp="1796028900"), written=written(60, "mig.config.state"))
    assert judgements(timed)["rediscovered"].verdict is Verdict.PASS


def test_slices_that_labels_count_say_nothing_of_lost_gpus() -> None:
    both = single(profiles=[SEVEN, SEVEN])
    assert judgements(cluster(silicon(both, h100())))["visible-gpus"].verdict is Verdict.NOT_PROVEN
    bus = {("gpu-1", "pci"): "0000:1b:00.0 0302: 10de:2330\n0000:2d:00.0 0302: 10de:2330 (rev a1)\n"}
    assert judgements(cluster(silicon(both, h100()), told=bus))["visible-gpus"].verdict is Verdict.FAIL
    assert judgements(cluster(both, told=bus))["visible-gpus"].verdict is Verdict.PASS


def test_a_config_map_of_ones_own_decides_alone() -> None:
    mount = {"name": "configs", "mountPath": "/configs"}
    manager = operand_pod("mig-manager", "gpu-1")
    manager["spec"]["containers"][0] |= {
        "env": [{"name": "CONFIG_FILE", "value": "/configs/config.yaml"}],
        "volumeMounts": [mount],
    }
    manager["spec"]["volumes"] = [{"name": "configs", "configMap": {"name": "ours"}}]
    own = config_map(CONFIG.replace("all-1g.10gb", "small"), "ours")
    of = cluster(sliced(), without=frozenset({"mig-manager"}), extra=(manager, own))
    assert set(found(of)) == {"MIG016"}
    manager["spec"]["volumes"] = [{"name": "configs", "configMap": {"name": "default-mig-parted-config"}}]
    assert found(of) == {}


def test_memory_that_nobody_told_proves_no_isolation() -> None:
    untold = {("gpu-1", "nvidia-smi-q-x"): Unknown(Reason.NOT_ASKED, "the snapshot does not hold it")}
    assert judgements(cluster(sliced(), told=untold))["kept-memory"].verdict is Verdict.NOT_PROVEN
    assert judgements(cluster(sliced()))["kept-memory"].verdict is Verdict.PASS


def test_configurations_are_found_beside_daemonsets_that_have_no_pods() -> None:
    of = cluster(labelled(sliced(), mig__config="all-special"), without=frozenset(OPERANDS))
    assert "MIG016" in found(of)


def test_a_pod_with_what_its_node_does_not_offer_is_looked_at_twice() -> None:
    bad = cluster(sliced(), extra=(pod("train", "gpu-1", asks={"nvidia.com/mig-3g.40gb": 1}),))
    assert set(found(bad.with_(later=bad))) == {"MIG022"}
    young = bad.with_(written=written(2, "mig.config.state"))
    assert found(young) == {}
    assert set(found(young.with_(later=young))) == {"MIG022"}
    offers = cluster(offering(sliced(), mig_3g__40gb=1), extra=bad.extra)
    assert "MIG022" not in found(bad.with_(later=offers))


WRONG = "nvidia.com/mig-2g.20gb"


def slices_of(driver: str, node: str = "gpu-1") -> dict[str, Any]:
    """What a DRA driver publishes of a node."""
    devices = [{"name": "gpu-0-mig-2g20gb-14-0", "attributes": {}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {"nodeName": node, "driver": driver, "devices": devices},
    }


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"extra": (slices_of("gpu.nvidia.com"),)}, Verdict.UNKNOWN),
        ({"missing": {"resourceslices.resource.k8s.io": Unknown(Reason.FORBIDDEN)}}, Verdict.UNKNOWN),
        ({"extra": (slices_of("net.example.com"),)}, Verdict.FAIL),
        ({"missing": {"resourceslices.resource.k8s.io": Inapplicable("not served")}}, Verdict.FAIL),
    ],
    ids=["published", "not read", "of another driver", "not served"],
)
def test_where_devices_are_claimed_a_resource_may_be_served_that_no_node_offers(
    changes: dict[str, Any], verdict: Verdict
) -> None:
    waits = pod("waits", "", asks={WRONG: 1})
    of = cluster(sliced(), **{**changes, "extra": (waits, *changes.get("extra", ()))})
    assert judgements(of)["offered"].verdict is verdict


def waiting(made: float = 60, gates: Sequence[str] = (), asks: str = WRONG) -> dict[str, Any]:
    """A pod without a node, of so many minutes ago."""
    item = pod("waits", "", asks={asks: 1})
    item["metadata"]["creationTimestamp"] = (A_MOMENT - timedelta(minutes=made)).isoformat()
    item["spec"]["schedulingGates"] = [{"name": each} for each in gates]
    return item


def from_pool(node: GpuNode) -> GpuNode:
    """A node of a pool that can be made larger."""
    return replace(node, extra={**node.extra, "karpenter.sh/nodepool": "gpus"})


def without_any(node: GpuNode) -> GpuNode:
    """A node that knows the resource, and has none just now."""
    return offering(node, mig_2g__20gb=0)


@pytest.mark.parametrize(
    ("node", "item", "codes"),
    [
        (sliced(), waiting(), {"MIG032"}),
        (sliced(), waiting(gates=["kueue.x-k8s.io/admission"]), set[str]()),
        (sliced(), waiting(made=5), {"MIG032"}),
        (from_pool(sliced()), waiting(made=5), set[str]()),
        (from_pool(sliced()), waiting(made=7), {"MIG032"}),
        (without_any(sliced()), waiting(made=5), set[str]()),
        (without_any(sliced()), waiting(made=7), {"MIG032"}),
    ],
    ids=["waits", "gated", "young", "young, of a pool", "old, of a pool", "young, known", "old, known"],
)
def test_a_pod_waits_in_vain_once_nothing_can_be_on_its_way(
    node: GpuNode, item: dict[str, Any], codes: set[str]
) -> None:
    assert set(found(cluster(node, extra=(item,)))) == codes


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (sliced(), "which no node offers: they wait for ever"),
        (from_pool(sliced()), "which no node offers now: they wait until one does"),
        (without_any(sliced()), "which no node offers now: they wait until one does"),
    ],
)
def test_who_waits_for_what_may_come_does_not_wait_for_ever(node: GpuNode, words: str) -> None:
    (message,) = found(cluster(node, extra=(waiting(),)))["MIG032"]
    assert words in message


OFF, ON = policy(migManager={"enabled": False}), policy(migManager={"enabled": True})
UNASKED = labelled(sliced(), mig__config=None, mig__config__state=None)


@pytest.mark.parametrize(
    ("node", "extra", "codes"),
    [
        (UNASKED, (OFF,), set[str]()),
        (UNASKED, (ON,), {"MIG019"}),
        (UNASKED, (policy(),), {"MIG019"}),
        (UNASKED, (), {"MIG019"}),
        (sliced(), (OFF,), {"MIG019"}),
    ],
    ids=["off, no wish", "on", "by default", "policy not served", "off, and a wish"],
)
def test_slices_of_the_hosts_own_need_no_manager(
    node: GpuNode, extra: tuple[dict[str, Any], ...], codes: set[str]
) -> None:
    assert set(found(cluster(node, without=frozenset({"mig-manager"}), extra=extra))) == codes


def test_whether_a_manager_is_missed_rests_on_the_policy() -> None:
    unread = {"clusterpolicies.nvidia.com": Unknown(Reason.FORBIDDEN)}
    of = cluster(UNASKED, without=frozenset({"mig-manager"}), missing=unread)
    assert judgements(of)["present-manager"].verdict is Verdict.UNKNOWN
