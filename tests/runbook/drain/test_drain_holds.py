"""Whatever happens to a cluster while it is drained: nothing is evicted that the plan does not allow, nothing
on another node is touched, and success is claimed of an empty node alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.facts.gather import Facts
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.runbook.drain.evict import Drain, drain_step
from gpuctl.runbook.drain.runbook import DRAINING
from gpuctl.runbook.records import Bounds
from gpuctl.runbook.writer import WriteFailed
from tests.runbook.drain import scenes
from tests.runbook.drain.scenes import Object, Scene, scene
from tests.runbook.memory_writer import Call, MemoryWriter

STEP = drain_step(DRAINING)
OWNERS = [("ReplicaSet", "llm-5d8"), ("StatefulSet", "db"), ("Job", "train"), ("DaemonSet", "d"), None]
PODS = st.fixed_dictionaries(
    {
        "name": st.sampled_from([f"pod-{number}" for number in range(6)]),
        "namespace": st.sampled_from(["team-a", "team-b", "kube-system"]),
        "owner": st.sampled_from(OWNERS),
        "asks": st.sampled_from([None, {}]),
        "status": st.sampled_from([{}, {"phase": "Pending"}, {"phase": "Succeeded"}, {"conditions": []}]),
    },
    optional={"spec": st.just({"volumes": [{"name": "t", "emptyDir": {}}]})},
)
ROUND = st.fixed_dictionaries(
    {},
    optional={
        "arrives": PODS,
        "elsewhere": PODS,
        "ends": st.integers(0, 9),
        "moves": st.integers(0, 9),
        "fails": st.sampled_from(["before", "after"]),
        "allowed": st.integers(0, 3),
        "blind": st.sampled_from(["pods", "poddisruptionbudgets.policy"]),
    },
)


class Story:
    """A cluster with a drain under way, and all that was ever asked of it."""

    def __init__(self, pods: list[dict[str, Any]], spare: int) -> None:
        self.numbers = iter(range(10**6))
        self.found = scene(
            scenes.node(), *REPLICAS, scenes.budget(), options={"force": True, "delete_emptydir_data": True}
        )
        for made in pods:
            self.add(made, scenes.NAME)
        self.step = self._planned(spare)
        self.writer = self.found.writer
        self.planned = {each.uid for each in self.step.victims}
        self.touched: list[Object] = []

    def _planned(self, spare: int) -> Drain:
        step = self.found.look([STEP])[STEP]
        wider = msgspec.structs.replace(step.bounds, evictions=step.bounds.evictions + spare)
        return msgspec.structs.replace(step, bounds=wider)

    def add(self, made: dict[str, Any], node: str) -> None:
        """A pod of a uid that none had before, unless there is one of this name."""
        pod = scenes.pod(**made)
        if self.writer_find(pod) is None:
            pod["metadata"]["uid"] = f"uid-{next(self.numbers)}"
            pod["spec"]["nodeName"] = node
            self.found.items.append(pod)

    def writer_find(self, pod: Object) -> Object | None:
        return MemoryWriter(self.found.items).find(
            scenes.ref(pod["metadata"]["name"], pod["metadata"]["namespace"])
        )

    def pods(self) -> Iterator[Object]:
        yield from (item for item in self.found.items if item["kind"] == "Pod")

    def on_the_node(self) -> list[Object]:
        return [pod for pod in self.pods() if pod["spec"]["nodeName"] == scenes.NAME]

    def happens(self, event: dict[str, Any]) -> Scene:
        """What others do, and what can be seen after it."""
        if "arrives" in event:
            self.add(event["arrives"], scenes.NAME)
        if "elsewhere" in event:
            self.add(event["elsewhere"], "gpu-2")
        there = self.on_the_node()
        if "ends" in event and there:
            self.found.items.remove(there[event["ends"] % len(there)])
        if "allowed" in event:
            self.budget()["status"]["disruptionsAllowed"] = event["allowed"]
        gap = Unknown(Reason.TIMEOUT, "no answer")
        return self.found.with_(missing={event["blind"]: gap}) if "blind" in event else self.found

    def moves(self, event: dict[str, Any]) -> None:
        """Between look and write a pod goes, and its like starts elsewhere under the same name."""
        there = self.on_the_node()
        if "moves" in event and there:
            pod = there[event["moves"] % len(there)]
            pod["metadata"]["uid"] = f"uid-{next(self.numbers)}"
            pod["spec"]["nodeName"] = "gpu-2"

    def budget(self) -> Object:
        return next(item for item in self.found.items if item["kind"] == "PodDisruptionBudget")

    def goes(self, event: dict[str, Any]) -> bool:
        """One round as the engine makes it. Whether the run goes on."""
        facts = self.happens(event).look(self.step.needs)
        self.moves(event)
        self.writer.before = self._failing if event.get("fails") == "before" else self._noting
        self.writer.after = self._failing if event.get("fails") == "after" else _nothing
        try:
            if self.step.holds(facts) or self.step.stuck(facts):
                return False
            self.step.act(facts, self.writer)
        except (NotKnown, WriteFailed):
            pass
        return True

    def _noting(self, call: Call) -> None:
        pod = self.writer.find(call.ref)
        if pod is not None and pod["metadata"]["uid"] == call.uid:
            self.touched.append(copy.deepcopy(pod))

    @staticmethod
    def _failing(_: Call) -> None:
        raise WriteFailed(Unknown(Reason.SERVER_ERROR, "500"))


REPLICAS = [
    scenes.controller(kind, name, namespace=namespace)
    for kind, name in filter(None, OWNERS)
    for namespace in ("team-a", "team-b", "kube-system")
]


def _nothing(_: Call) -> None:
    pass


def _within(pod: Object, bounds: Bounds) -> bool:
    owners = pod["metadata"]["ownerReferences"]
    kind = owners[0]["kind"] if owners else "Pod"
    return pod["metadata"]["namespace"] in bounds.namespaces and kind in bounds.owner_kinds


@settings(max_examples=100, deadline=None)
@given(st.lists(PODS, max_size=5), st.integers(0, 2), st.lists(ROUND, max_size=8))
def test_nothing_is_evicted_that_the_plan_does_not_allow(
    pods: list[dict[str, Any]], spare: int, events: list[dict[str, Any]]
) -> None:
    story = Story(pods, spare)
    for event in events:
        if not story.goes(event):
            break
    for pod in story.touched:
        assert pod["spec"]["nodeName"] == scenes.NAME
        owners = pod["metadata"]["ownerReferences"]
        assert not (owners and owners[0]["kind"] == "DaemonSet")
        assert pod["status"]["phase"] != "Succeeded"
        if pod["metadata"]["uid"] not in story.planned:
            assert _within(pod, story.step.bounds)


@settings(max_examples=60, deadline=None)
@given(st.lists(PODS, max_size=5), st.lists(ROUND, max_size=6))
def test_success_is_claimed_of_an_empty_node_alone(
    pods: list[dict[str, Any]], events: list[dict[str, Any]]
) -> None:
    story = Story(pods, 0)
    for event in events:
        facts = story.happens(event).look(story.step.needs)
        if _holds(story.step, facts):
            left = [each for each in story.on_the_node() if each["status"]["phase"] != "Succeeded"]
            owners = [each["metadata"]["ownerReferences"] for each in left]
            assert all(each and each[0]["kind"] == "DaemonSet" for each in owners)
        story.goes({})


def _holds(step: Drain, facts: Facts) -> bool:
    try:
        return step.holds(facts)
    except NotKnown:
        return False
