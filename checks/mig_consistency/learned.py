"""What the check learns of each node, whatever the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.audit.mask import masked_text
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, State
from gpuctl.nvidia.facts import Looked, nodes_whose_hardware_is_known, nodes_with_GPUs
from gpuctl.nvidia.model import Gpu
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.query import Process


@given(nodes_with_GPUs, Maybe(nodes_whose_hardware_is_known))
def learned_of_nodes(
    nodes: Each[Ref, Node], looked: State[Each[Ref, Looked]]
) -> Each[Ref, Mapping[str, Any]]:
    return nodes.map(lambda node: {**_api(node), **_inside(node, looked)})


def _api(node: Node) -> Mapping[str, Any]:
    return {
        "product": node.product,
        "strategy": node.strategy,
        "sharing": node.sharing.kind,
        "config": node.config,
        "state": node.state,
        "owner": node.owner.name if node.owner else "",
        "capacity": dict(node.capacity),
        "allocatable": dict(node.allocatable),
    }


def _inside(node: Node, looked: State[Each[Ref, Looked]]) -> Mapping[str, Any]:
    state = looked.value.entries.get(node.ref) if isinstance(looked, Known) else None
    if not isinstance(state, Known):
        return {}
    return {"gpus": [_gpu(gpu) for gpu in state.value.hardware.gpus]}


def _gpu(gpu: Gpu) -> Mapping[str, Any]:
    memory = {
        str(device.index): {"profile": str(device.profile), "used": told.used, "total": told.total}
        for device in (gpu.devices if gpu.memory else ())
        if (told := gpu.memory_of(device)) is not None
    }
    return {
        "index": gpu.index,
        "busId": gpu.bus_id,
        "uuid": gpu.uuid,
        "model": gpu.name,
        "mode": gpu.mode,
        "layout": gpu.layout,
        **({"memoryOfDevicesMiB": memory} if memory else {}),
        **({"processes": [_process(each) for each in gpu.processes]} if gpu.processes else {}),
    }


def _process(process: Process) -> Mapping[str, Any]:
    where = {} if process.instance is None else {"gpuInstance": process.instance}
    return {
        "pid": process.pid,
        "name": masked_text(process.name),
        "memoryMiB": process.memory,
        **where,
    }
