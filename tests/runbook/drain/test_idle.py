"""Idle is proven twice: no pod holds a GPU, and nvidia-smi on the node knows of no process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpuctl.facts.nodes import Output
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.runbook.drain.idle import ASKED_BY, Idle, processes_are_explained, the_node_to_look_into
from tests.runbook.drain import scenes
from tests.runbook.drain.scenes import NAME, RUN, UID, Object, Scene, scene

STEP = Idle(node=NAME, node_uid=UID)
LIST = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0a1b2c3d-0000-4000-8000-000000000001)\n"
GPU = "GPU-0a1b2c3d-0000-4000-8000-000000000001"
HEADER = "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
Told = Mapping[tuple[str, str], Output | str | Unknown]


def apps(*pids: int) -> str:
    return HEADER + "".join(f"{GPU}, {pid}, python, 1000\n" for pid in pids)


def told(*pids: int, **more: Output | str | Unknown) -> Told:
    answers: dict[str, Output | str | Unknown] = {
        "nvidia-smi-L": LIST,
        "nvidia-smi-compute-apps": apps(*pids),
        **{name.replace("_", "-"): each for name, each in more.items()},
    }
    return {(NAME, name): each for name, each in answers.items()}


SEEING = {"containers": [{"name": "c", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]}
PLUGIN = scenes.pod(
    "plugin",
    "gpu-operator",
    owner=("DaemonSet", "plugin"),
    labels={"app": "nvidia-device-plugin-daemonset"},
    spec=SEEING,
)
DOWN = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"


def on(*pods: Object, **more: Any) -> Scene:
    return scene(PLUGIN, *pods, **{"told": told(), **more})


def holds(found: Scene) -> bool:
    return STEP.holds(found.look(STEP.needs))


def stuck(found: Scene) -> str:
    return STEP.stuck(found.look(STEP.needs))


def test_a_node_without_holders_and_processes_is_idle() -> None:
    assert holds(on())
    assert stuck(on()) == ""


@pytest.mark.parametrize(
    ("pod", "busy"),
    [
        ({}, True),
        ({"deletionTimestamp": scenes.stamp(5)}, True),
        ({"owner": ("DaemonSet", "inference")}, True),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, True),
        ({"asks": {}}, False),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"labels": {"app.kubernetes.io/managed-by": "gpuctl"}}, False),
    ],
)
def test_every_pod_with_a_gpu_keeps_it_from_being_idle(pod: dict[str, Any], busy: bool) -> None:
    found = on(scenes.pod(**pod))
    assert holds(found) is not busy
    assert stuck(found) == ""
    if busy:
        facts = found.look(STEP.needs)
        assert STEP.progress(facts) == "held by team-a/llm-0 (1x nvidia.com/gpu)"


def test_a_process_that_stays_and_that_no_pod_explains_stops_the_run() -> None:
    found = on(told=told(4711), later_told=told(4711))
    assert not holds(found)
    assert stuck(found) == (
        f"a process that no pod explains holds a GPU of node gpu-1: 4711 (python) on {GPU}"
    )


def test_a_process_that_is_about_to_end_is_waited_for() -> None:
    found = on(told=told(4711), later_told=told())
    assert not holds(found)
    assert stuck(found) == ""
    assert "4711 (python)" in STEP.progress(on(told=told(4711)).look(STEP.needs))


def test_another_process_in_its_place_is_not_the_same() -> None:
    assert stuck(on(told=told(4711), later_told=told(4712))) == ""


def test_a_process_of_a_pod_is_the_pods_matter() -> None:
    found = on(scenes.pod(), told=told(4711), later_told=told(4711))
    assert not holds(found)
    assert stuck(found) == ""


@pytest.mark.parametrize(
    "answers",
    [
        told(nvidia_smi_L=Unknown(Reason.TIMEOUT, "hung")),
        told(nvidia_smi_L="No devices were found\n"),
        told(nvidia_smi_compute_apps=Unknown(Reason.NO_POD, "no pod")),
        told(nvidia_smi_compute_apps=DOWN),
    ],
)
def test_a_node_that_can_t_be_looked_into_is_not_idle(answers: Told) -> None:
    with pytest.raises(NotKnown):
        holds(on(told=answers))


DRIVER = scenes.pod(
    "driver",
    "gpu-operator",
    owner=("DaemonSet", "driver"),
    labels={"app": "nvidia-driver-daemonset"},
    spec={"hostPID": True},
)


@pytest.mark.parametrize(
    ("pods", "by"),
    [
        ([DRIVER, PLUGIN], ["driver"]),
        ([PLUGIN], []),
        ([{**DRIVER, "spec": {**DRIVER["spec"], "hostPID": False}}, PLUGIN], []),
        ([scenes.pod(spec={"hostPID": True}), DRIVER], ["driver"]),
    ],
)
def test_processes_are_asked_for_only_where_those_of_the_host_can_be_seen(
    pods: list[Object], by: list[str]
) -> None:
    """Elsewhere nvidia-smi says that no process runs, whatever does."""
    (target,) = scene(*pods, told=told()).look([the_node_to_look_into])[the_node_to_look_into]
    assert [place.pod for place in target.places] == by


def test_processes_that_draw_count_too() -> None:
    detail = f"""<?xml version="1.0" ?>
<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="00000000:1B:00.0"><uuid>{GPU}</uuid><processes>
<process_info><pid>99</pid><type>G</type><process_name>Xorg</process_name></process_info>
</processes></gpu></nvidia_smi_log>"""
    assert not holds(on(told=told(nvidia_smi_q_x=detail)))


def test_another_node_of_the_same_name_is_not_idle() -> None:
    found = on()
    found.items[0]["metadata"]["uid"] = "another"
    assert not holds(found)
    assert "was replaced" in stuck(found)


UNSEEN = {name: Unknown(Reason.NO_POD, "the driver is paused") for name in ("nvidia_smi_L",)}


@pytest.mark.parametrize(
    ("mark", "asked"), [(RUN, True), (f"{RUN}:undo", True), ("run-2", False), ("", False), ("run-11", False)]
)
def test_once_the_change_is_asked_for_its_gpus_are_not_looked_at(mark: str, asked: bool) -> None:
    """Nor does a run that is resumed in the middle wait for what can't be seen by then."""
    found = on(told=told(**UNSEEN))
    found.items[0]["metadata"]["annotations"] = {ASKED_BY: mark}
    facts = found.look((*STEP.needs, the_node_to_look_into))
    assert bool(facts[the_node_to_look_into]) is not asked
    if asked:
        assert STEP.holds(facts)
    else:
        with pytest.raises(NotKnown):
            STEP.holds(facts)


# Before anything is done


def checkpoint(device: str = GPU) -> str:
    entry = {"PodUID": "uid-of-llm-0", "ResourceName": "nvidia.com/gpu", "DeviceIDs": [device]}
    return json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1})


ELSEWHERE = told(4711, kubelet_devices=checkpoint("GPU-other"))


@pytest.mark.parametrize(
    ("pods", "answers", "blocks"),
    [
        ([], told(), False),
        ([], told(4711), True),
        ([scenes.pod()], told(4711), False),
        ([scenes.pod(asks={})], told(4711), True),
        ([scenes.pod()], told(4711, kubelet_devices=checkpoint()), False),
        ([scenes.pod()], ELSEWHERE, True),
        ([scenes.pod()], told(4711, kubelet_devices=checkpoint("MIG-1")), False),
        ([scenes.pod(), scenes.pod("b", asks={}, spec=SEEING)], ELSEWHERE, False),
        ([], told(nvidia_smi_L=Unknown(Reason.TIMEOUT)), True),
    ],
)  # fmt: skip
def test_processes_must_be_some_pods(pods: list[Object], answers: Told, blocks: bool) -> None:
    found = on(*pods, told=answers).blockers([processes_are_explained])
    assert bool(found) is blocks
    assert all(not each.override for each in found)
