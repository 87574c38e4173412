"""GPUs as pictures: to scale, held and free told apart by sign, also where a terminal knows no blocks."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from gpuctl.facts.gather import gather
from gpuctl.facts.metrics import labels as sorted_labels
from gpuctl.facts.nodes import Output
from gpuctl.facts.state import Each
from gpuctl.nvidia.exporter import SERIES
from gpuctl.nvidia.picture import NodePicture, pictures_of_nodes
from gpuctl.report.mig import draw_nodes, to_json
from gpuctl.report.text import canvas
from tests.builders.gpus import SEVEN, GpuCluster, cluster, pod, sliced
from tests.cluster.bed.simulated import GpuNode, gpu_node
from tests.cluster.standins.state import Process
from tests.memory import A_MOMENT


def pictures(of: GpuCluster) -> list[NodePicture]:
    facts = gather([pictures_of_nodes], of.reader, {})
    return [picture for _, picture in facts[pictures_of_nodes].known()]


def drawn(nodes: list[NodePicture], **options: Any) -> str:
    page = io.TextIOWrapper(io.BytesIO(), encoding=options.pop("encoding", "utf-8"))
    console = Console(file=page, force_terminal=False, width=200, **options)
    draw_nodes(nodes, canvas(console))
    page.flush()
    return page.buffer.getvalue().decode(page.encoding)


def held_by(uuid: str, uid: str) -> str:
    entry = {
        "PodUID": uid,
        "ContainerName": "main",
        "ResourceName": "nvidia.com/mig-1g.10gb",
        "DeviceIDs": {"-1": [uuid]},
    }
    return json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 0})


def one_held() -> GpuCluster:
    node = sliced()
    (gpu,) = node.state.gpus
    uuid = gpu.instances[0].compute_instances[0].uuid
    return cluster(
        node,
        extra=(pod("infer", "gpu-1", asks={"nvidia.com/mig-1g.10gb": 1}),),
        told={("gpu-1", "kubelet-devices"): held_by(uuid, "uid-infer")},
    )


def test_slices_lie_where_they_are_and_say_who_holds_them() -> None:
    text = drawn(pictures(one_held()))
    assert "1 of 7 held" in text
    assert "team-a/infer" in text
    assert text.count("free") == 6
    (bar,) = [line for line in text.splitlines() if line.startswith("  │")]
    assert len(bar) == 2 + 1 + 8 * 9
    assert bar.count("█") == 1
    assert "·" in bar


def test_labels_stand_beside_the_slices() -> None:
    (node,) = pictures(cluster(sliced()))
    assert node.labels["mig-1g.10gb.count"] == "7"
    assert "mig.config=all-1g.10gb  mig.config.state=success  mig-1g.10gb.count=7" in drawn([node])


def test_a_name_that_is_too_long_for_its_slice_is_marked_as_cut() -> None:
    text = drawn(pictures(cluster(gpu_node("n", profiles=[["1g.10gb+me"]]))))
    assert "│1g.10gb…│" in text
    assert "1g.10gb+me" in text


def test_without_the_kubelet_s_record_no_holder_is_guessed() -> None:
    text = drawn(pictures(cluster(sliced())))
    assert "holder unknown" in text
    assert "free" not in text


def test_a_terminal_without_blocks_gets_plain_signs() -> None:
    text = drawn(pictures(one_held()), encoding="ascii")
    assert text.isascii()
    assert "|1g.10gb" in text or "|-" in text


def test_whole_gpus_are_one_slice() -> None:
    text = drawn(pictures(cluster(gpu_node("n", profiles=[None, None]))))
    assert text.count("whole GPU") == 4


def test_a_slice_is_as_wide_as_its_share() -> None:
    (node,) = pictures(cluster(gpu_node("n", profiles=[["3g.40gb", "1g.10gb"]])))
    sizes = {each.name: each.size for each in node.gpus[0].slices}
    assert sizes == {"3g.40gb": 4, "1g.10gb": 1}
    assert node.gpus[0].slots == 8


def test_many_nodes_are_a_line_for_each_kind() -> None:
    nodes = [gpu_node(f"n-{number}", profiles=[SEVEN], config="all-1g.10gb") for number in range(30)]
    text = drawn(pictures(cluster(*nodes, gpu_node("odd", profiles=[None]))))
    assert "drawn: one of each kind, 2 of 31 nodes" in text


def test_a_node_that_was_not_looked_into_says_so() -> None:
    text = drawn(pictures(cluster(sliced(), probed=False)))
    assert "its GPUs are not known" in text


def test_json_has_all_of_it() -> None:
    document = json.loads(to_json(pictures(one_held()), iter(())))
    (node,) = document["nodes"]
    slices = node["gpus"][0]["slices"]
    assert [each.get("holders") for each in slices if each.get("held")] == [["team-a/infer"]]
    assert node["capacity"] == {"nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb": 7}


PROCESSES = """\
{gpu}, 4711, /usr/bin/python3, 9000
GPU-of-another, 4712, /usr/bin/python3, 1
"""


def with_processes(node: GpuNode, detail: bool) -> GpuCluster:
    """A node on whose first slice a process runs, as -q -x tells it or --query-compute-apps alone."""
    (gpu,) = node.state.gpus
    instance = gpu.instances[0]
    process = Process(
        gpu=0, pid=4711, name="train --token hf_abcdefghijklmnopqrst", memory=9000, gi=instance.id, ci=0
    )
    busy = replace(node, state=replace(node.state, processes=(process,)))
    told: dict[tuple[str, str], Output] = {
        ("gpu-1", "nvidia-smi-compute-apps"): Output(PROCESSES.format(gpu=gpu.uuid))
    }
    if not detail:
        told["gpu-1", "nvidia-smi-q-x"] = Output("", "", 1)
    return cluster(busy, told=told)


def test_processes_stand_under_their_slice() -> None:
    (node,) = pictures(with_processes(sliced(), detail=True))
    (gpu,) = node.gpus
    assert [each.pid for each in gpu.slices[0].processes] == [4711]
    assert not any(each.processes for each in gpu.slices[1:])
    assert gpu.processes == ()
    text = drawn([node])
    assert "process 4711" in text
    assert "hf_abc" not in text
    assert "hf_abc" not in to_json([node], iter(()))


def test_processes_of_which_only_the_gpu_is_known_stand_apart() -> None:
    (node,) = pictures(with_processes(sliced(), detail=False))
    (gpu,) = node.gpus
    assert not any(each.processes for each in gpu.slices)
    assert [each.pid for each in gpu.processes] == [4711]
    assert "nothing tells which" in drawn([node])


def test_processes_of_a_whole_gpu_are_on_it() -> None:
    node = gpu_node("gpu-1", profiles=[None])
    told = {("gpu-1", "nvidia-smi-compute-apps"): PROCESSES.format(gpu=node.state.gpus[0].uuid)}
    (shown,) = pictures(cluster(node, told=told))
    assert [each.pid for each in shown.gpus[0].slices[0].processes] == [4711]


def by_exporter(labels: Mapping[str, str], **changes: Any) -> list[NodePicture]:
    """What is shown where a Prometheus has such a series of the first slice."""
    of = cluster(sliced(), **changes)
    (gpu,) = of.nodes[0].state.gpus
    known = {"UUID": gpu.uuid, "GPU_I_ID": str(gpu.instances[0].id), "__name__": SERIES.query}
    points = ((A_MOMENT, 9000.0),)
    reader = replace(of.reader, series={SERIES.query: Each.of({sorted_labels({**known, **labels}): points})})
    facts = gather([pictures_of_nodes], reader, {})
    return [picture for _, picture in facts[pictures_of_nodes].known()]


@pytest.mark.parametrize(
    ("labels", "holder"),
    [
        ({"pod": "infer-0", "namespace": "team-a"}, "team-a/infer-0"),
        ({"pod_name": "infer-0", "pod_namespace": "team-a"}, "team-a/infer-0"),
        (
            {"pod": "nvidia-dcgm-exporter-x", "namespace": "gpu-operator", "exported_pod": "infer-0",
             "exported_namespace": "team-a"},
            "team-a/infer-0",
        ),
        ({"pod": "nvidia-dcgm-exporter-x", "namespace": "gpu-operator"}, ""),
        ({"pod": "mine", "namespace": "monitoring", "exported_pod": "", "exported_namespace": ""}, ""),
        ({"pod": "", "namespace": ""}, ""),
    ],
)  # fmt: skip
def test_dcgm_exporter_names_holders_and_no_slice_is_free_for_its_silence(
    labels: Mapping[str, str], holder: str
) -> None:
    (node,) = by_exporter(labels)
    first, *others = node.gpus[0].slices
    assert first.holders == ((holder,) if holder else ())
    assert first.held is (True if holder else None)
    assert {each.held for each in others} == {None}
    assert ("as DCGM exporter says" in drawn([node])) is bool(holder)


def test_the_kubelet_s_record_goes_before_the_exporter() -> None:
    told = {("gpu-1", "kubelet-devices"): held_by("MIG-other", "uid-infer")}
    (node,) = by_exporter({"pod": "infer-0", "namespace": "team-a"}, told=told)
    assert {each.held for each in node.gpus[0].slices} == {False}
