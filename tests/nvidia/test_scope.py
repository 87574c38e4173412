"""Which nodes are meant, and what it means that some or all of them are not there."""

from __future__ import annotations

import pytest

from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, Reason, State, Unknown
from gpuctl.nvidia.facts import SCOPE, GPU_nodes_at_first
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.objects import NodeView
from gpuctl.nvidia.scope import NO_GPUS, NO_SUCH_NODE, Scope
from tests.builders.gpus import cluster, sliced
from tests.memory import MemoryReader

PLAIN = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "cpu-1", "uid": "u", "labels": {"pool": "c"}},
}


def meant(scope: Scope) -> State[Each[Ref, Node]]:
    items = [*cluster(sliced("gpu-1"), sliced("gpu-2")).items, PLAIN]
    return gather([GPU_nodes_at_first], MemoryReader(items), {SCOPE: scope}).state(GPU_nodes_at_first)


def names(state: State[Each[Ref, Node]]) -> list[str]:
    assert not isinstance(state, (Unknown, Inapplicable)), state
    return sorted(ref.name for ref, _ in state.value.known())


@pytest.mark.parametrize(
    ("scope", "those"),
    [
        (Scope(), ["gpu-1", "gpu-2"]),
        (Scope(("gpu-2",)), ["gpu-2"]),
        (Scope(("gpu-2", "cpu-1")), ["gpu-2"]),
        (Scope(labels="kubernetes.io/hostname=gpu-1"), ["gpu-1"]),
        (Scope(labels="pool!=c"), ["gpu-1", "gpu-2"]),
    ],
)
def test_the_nodes_of_these_names_and_labels(scope: Scope, those: list[str]) -> None:
    state = meant(scope)
    assert names(state) == those
    assert not isinstance(state, (Unknown, Inapplicable))
    assert not list(state.value.gaps())


@pytest.mark.parametrize("others", [(), ("gpu-1",)])
def test_a_misspelt_name_is_unknown_and_hides_nothing(others: tuple[str, ...]) -> None:
    state = meant(Scope((*others, "gpu-O2")))
    assert names(state) == [*others]
    assert not isinstance(state, (Unknown, Inapplicable))
    missing = Ref(NodeView.of, "gpu-O2")
    assert dict(state.value.entries)[missing] == Unknown(Reason.NOT_ASKED, NO_SUCH_NODE, str(missing))


def test_labels_that_no_node_has_are_unknown() -> None:
    state = meant(Scope(labels="pool=gold"))
    assert isinstance(state, Unknown)
    assert "no node has the labels pool=gold" in str(state)


def test_nodes_without_gpus_are_no_question() -> None:
    for scope in (Scope(("cpu-1",)), Scope(labels="pool=c")):
        assert meant(scope) == Inapplicable("none of the nodes asked for has NVIDIA GPUs")
    nothing = gather([GPU_nodes_at_first], MemoryReader([PLAIN]), {}).state(GPU_nodes_at_first)
    assert nothing == NO_GPUS


def test_what_may_be_among_nodes_that_could_not_be_listed_is_not_called_missing() -> None:
    gap = Unknown(Reason.TIMEOUT, "the second page", "nodes")
    assert not list(Scope(("gpu-9",)).missed(Each({}, (gap,))))
    assert list(Scope(("gpu-9",)).missed(Each({})))
