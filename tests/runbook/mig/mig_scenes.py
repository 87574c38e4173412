"""A GPU node in memory whose MIG configuration is to be changed: objects, nvidia-smi, and a writer."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

from gpuctl.audit.policy import MaintenanceWindow, Policy, RunbooksPolicy
from gpuctl.facts.alerts import Alert
from gpuctl.facts.fact import Argument, Fact
from gpuctl.facts.gather import Facts, gather
from gpuctl.facts.metrics import Labels
from gpuctl.facts.nodes import Output
from gpuctl.facts.state import Each, Inapplicable, Unknown
from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.guard import Guard
from gpuctl.runbook.mig.reconfigure import RUNBOOK
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.planning import Task, plan_of
from tests.builders.gpus import (
    COMMANDS,
    OPERATOR,
    READY,
    SEVEN,
    config_map,
    operand_pod,
    pod,
)
from tests.builders.gpus import (
    CONFIG as CONFIGS,
)
from tests.cluster.bed.simulated import GpuNode, gpu_node, labels
from tests.cluster.standins import nvidia_smi
from tests.cluster.standins.state import NodeState
from tests.memory import A_MOMENT, MemoryReader
from tests.runbook.memory_writer import MemoryWriter

NAME, UID, RUN, BOOT = "gpu-1", "uid-of-gpu-1", "run-1", "boot-1"
OPERANDS = ("driver", "device-plugin", "gpu-feature-discovery", "mig-manager")
OPEN = MaintenanceWindow(opens="00:00", closes="24:00")
Object = dict[str, Any]
_ALL = {
    **COMMANDS,
    "nvidia-smi-compute-apps": (
        "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
        "--format=csv",
    ),
}
MANAGER_IMAGE = "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.16.1"


def stamp(seconds: float) -> str:
    """A moment before or after that of the reading."""
    return (A_MOMENT + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def writer(name: str, at: float, *labels_: str) -> Object:
    """Who wrote labels of a node, and when."""
    fields: Object = {"f:metadata": {"f:labels": {f"f:{each}": {} for each in labels_}}}
    return {"manager": name, "operation": "Update", "time": stamp(at), "fieldsV1": fields}


def manifest(node: GpuNode) -> Object:
    """A node as the API has it."""
    made: Object = json.loads(json.dumps(node.manifest))
    made["metadata"] |= {
        "uid": f"uid-of-{node.name}",
        "managedFields": [writer("nvidia-mig-manager", -7200, STATE), writer("admin", -7300, CONFIG)],
    }
    made["spec"] = {}
    made["status"] |= {"conditions": list(READY), "nodeInfo": {"bootID": BOOT, "osImage": "Ubuntu 24.04"}}
    return made


def operands(node: str, *, made: float = -7200) -> list[Object]:
    """The operands' pods on a node."""
    pods = [operand_pod(name, node) for name in OPERANDS]
    for each in pods:
        each["metadata"] |= {"creationTimestamp": stamp(made), "ownerReferences": [daemon_set()]}
    pods[-1]["spec"]["containers"][0]["image"] = MANAGER_IMAGE
    return pods


def daemon_set() -> Object:
    """The owner of operands."""
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "operand", "uid": "uid", "controller": True}


@lru_cache(maxsize=64)
def _said(state: str) -> Mapping[str, Output]:
    """What nvidia-smi says of GPUs in this state."""
    plain = json.loads(state)
    return {command: Output(*nvidia_smi.run(plain, list(arguments))) for command, arguments in _ALL.items()}


@dataclass
class MigScene:
    """A cluster of two GPU nodes, one of them the target. What is written to it is seen by later looks."""

    items: list[Object]
    states: dict[str, NodeState]
    options: Mapping[str, Any] = field(default_factory=lambda: {"config": "all-3g.40gb"})
    policy: Policy = field(default_factory=lambda: Policy(runbooks=RunbooksPolicy(windows=(OPEN,))))
    told: dict[tuple[str, str], Output | str | Unknown] = field(default_factory=dict)
    missing: dict[str, Unknown | Inapplicable] = field(default_factory=dict)
    firing: Each[Labels, Alert] | None = None
    seconds: float = 0
    run: str = RUN
    later: MigScene | None = None

    @property
    def writer(self) -> MemoryWriter:
        """Who writes to it."""
        return MemoryWriter(self.items)

    @property
    def task(self) -> Task:
        """A run of the runbook here."""
        return Task(RUNBOOK, NAME, self.options, self.policy, "gpuctl-system", run=self.run)

    def answers(self) -> dict[tuple[str, str], Output | str | Unknown]:
        """What nvidia-smi says on each node."""
        found = {
            (name, command): output
            for name, state in self.states.items()
            for command, output in _said(json.dumps(asdict(state))).items()
        }
        return {**found, **self.told}

    def look(self, needs: Iterable[Fact[Any]]) -> Facts:
        """What is known now."""
        return self.look_with(needs, self.task.arguments)

    def look_with(self, needs: Iterable[Fact[Any]], arguments: Mapping[Argument[Any], Any]) -> Facts:
        """The same, with other arguments."""
        after = self.later or self
        reader = MemoryReader(
            self.items,
            missing={"clusterpolicies.nvidia.com": Inapplicable("not served"), **self.missing},
            told=self.answers(),
            firing=self.firing,
            later_items=after.items,
            later_told=after.answers(),
            now=A_MOMENT + timedelta(seconds=self.seconds),
        )
        return gather(needs, reader, arguments)

    @property
    def plan(self) -> TargetPlan:
        """The plan for the node as it is."""
        return plan_of(self.task, self.look(RUNBOOK.needs))

    def against(self, *guards: Guard) -> list[str]:
        """What guards say against it."""
        facts = self.look([need for each in guards for need in each.needs])
        return [blocker.message for each in guards for blocker in each.blockers(facts)]

    def noted(self, guard: Guard) -> list[str]:
        """What a guard notes."""
        return list(guard.notes(self.look(guard.needs)))

    # Changes

    def node(self, name: str = NAME) -> Object:
        """A Node object."""
        return self.one("Node", name)

    def one(self, kind: str, name: str) -> Object:
        """An object."""
        (found,) = [each for each in self.items if each["kind"] == kind and each["metadata"]["name"] == name]
        return found

    def labelled(self, values: Mapping[str, str | None], by: str = "", at: float | None = None) -> MigScene:
        """Sets labels of the target, or removes them, maybe by somebody at some time."""
        about = self.node()["metadata"]
        for key, text in values.items():
            about["labels"].pop(key, None)
            if text is not None:
                about["labels"][key] = text
        if by:
            kept = [
                each
                for each in about["managedFields"]
                if not {f"f:{key}" for key in values} & set(each["fieldsV1"]["f:metadata"]["f:labels"])
            ]
            about["managedFields"] = [*kept, writer(by, self.seconds if at is None else at, *values)]
        return self

    def annotated(self, values: Mapping[str, str]) -> MigScene:
        """Sets annotations of the target."""
        self.node()["metadata"]["annotations"] |= values
        return self

    def add(self, *items: Object) -> MigScene:
        """More objects."""
        self.items += [copy.deepcopy(each) for each in items]
        return self

    def drop(self, kind: str, part: str) -> MigScene:
        """Without the objects of a kind whose name has this part."""
        self.items[:] = [
            each for each in self.items if each["kind"] != kind or part not in each["metadata"]["name"]
        ]
        return self

    def sliced(self, *profiles: Sequence[str] | None, name: str = NAME) -> MigScene:
        """Other silicon, of which labels and capacity know nothing."""
        self.states[name] = gpu_node(name, profiles=profiles).state
        return self

    def caught_up(self, strategy: str = "mixed") -> MigScene:
        """Labels and capacity follow the silicon."""
        target = self.node()
        config = target["metadata"]["labels"].get(CONFIG, "")
        state = target["metadata"]["labels"].get(STATE)
        made = gpu_node(NAME, strategy, profiles=[None])
        made = replace(made, state=self.states[NAME], config=config)
        kept = {
            key: text
            for key, text in target["metadata"]["labels"].items()
            if not key.startswith(("nvidia.com/mig-", "nvidia.com/gpu."))
        }
        written = {f"nvidia.com/{key}": text for key, text in labels(made.state, strategy, config).items()}
        target["metadata"]["labels"] = {**written, **kept, STATE: state or "success"}
        target["status"] |= {"capacity": dict(made.capacity), "allocatable": dict(made.capacity)}
        return self

    def at(self, seconds: float) -> MigScene:
        """The same cluster, so many seconds later."""
        self.seconds = seconds
        return self


def scene(
    node: GpuNode | None = None, *, options: Mapping[str, Any] | None = None, text: str = CONFIGS
) -> MigScene:
    """A healthy node with an H100 in seven slices, that is to have two, and another like it."""
    target = node or gpu_node(NAME, profiles=[SEVEN], config="all-1g.10gb")
    other = gpu_node("gpu-2", target.strategy, profiles=[SEVEN], config="all-1g.10gb")
    twin = replace(target, name="gpu-2") if node else other
    items = [
        manifest(target),
        manifest(twin),
        *operands(NAME),
        *operands("gpu-2"),
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "operand", "namespace": OPERATOR, "uid": "uid"},
        },
        config_map(text),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuctl-system", "uid": "ns"}},
    ]
    return MigScene(
        items,
        {NAME: target.state, "gpu-2": twin.state},
        options=options or {"config": "all-3g.40gb"},
    )


def holder(name: str = "train-0", node: str = NAME) -> Object:
    """A pod that holds a slice, and comes back elsewhere."""
    made = pod(name, node, asks={"nvidia.com/mig-1g.10gb": 1})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job", "controller": True}
    made["metadata"] |= {"ownerReferences": [owner], "creationTimestamp": stamp(-600)}
    return made


def job() -> Object:
    """What makes it anew."""
    about = {"name": "train", "namespace": "team-a", "uid": "job"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about}
