"""GPUs as pictures: to scale, held and free told apart by sign, also where a terminal knows no blocks."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from gpuctl.facts.gather import gather
from gpuctl.nvidia.picture import NodePicture, pictures_of_nodes
from gpuctl.report.mig import draw_nodes, to_json
from gpuctl.report.text import canvas
from tests.builders.gpus import SEVEN, GpuCluster, cluster, pod, sliced
from tests.cluster.bed.simulated import gpu_node


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
