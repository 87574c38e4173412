"""The graph of facts: each once, in order, and a failure costs only what rests on it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from gpuctl.facts.fact import (
    NOW,
    Argument,
    DryRun,
    Fact,
    Maybe,
    Named,
    Objects,
    OnNode,
    Within,
    given,
    graph,
    rules,
)
from gpuctl.facts.gather import Facts, gather
from gpuctl.facts.kinds import Attempt, Kind, Ref, Rule, View
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown
from tests.facts.views import NODES, PODS, NodeView, OtherPodView, PodView, node, pod
from tests.memory import A_MOMENT, MemoryReader

ALL_PODS = Objects(PodView)
ALL_NODES = Objects(NodeView)


@given(ALL_PODS)
def pod_names(pods: Each[Ref, PodView]) -> frozenset[str]:
    return frozenset(each.metadata.name for each in pods)


class Counting(MemoryReader):
    """Counts the lists that are asked for."""

    def objects(
        self, kind: Kind, labels: str, views: Sequence[type[View]]
    ) -> Sequence[State[Each[Ref, Any]]]:
        ASKED.append((kind.plural, len(views)))
        return super().objects(kind, labels, views)


ASKED: list[tuple[str, int]] = []


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    ASKED.clear()


def test_equal_reads_are_one_fact_and_derived_facts_are_not() -> None:
    assert Objects(PodView) == Objects(PodView)
    assert Objects(PodView) != Objects(PodView, "app=x")
    one, other = given(ALL_PODS)(len), given(ALL_PODS)(len)  # type: ignore[arg-type]
    assert one != other


def test_every_fact_comes_after_what_it_needs_and_once() -> None:
    order = graph([pod_names, ALL_PODS, pod_names])
    assert order == (ALL_PODS, pod_names)


def test_views_of_one_kind_share_one_request() -> None:
    reader = Counting([pod("a"), node("n")])
    facts = gather([ALL_PODS, Objects(OtherPodView), ALL_NODES], reader, {})
    assert sorted(ASKED) == [("nodes", 1), ("pods", 2)]
    assert [each.metadata.name for each in facts[Objects(OtherPodView)]] == ["a"]
    assert isinstance(next(iter(facts[ALL_PODS])), PodView)


def test_targets_of_a_read_come_from_another_fact() -> None:
    @given(ALL_NODES)
    def namespaces(nodes: Each[Ref, NodeView]) -> Collection[str]:
        return [each.metadata.name for each in nodes]

    @given(ALL_NODES)
    def refs(nodes: Each[Ref, NodeView]) -> Collection[Ref]:
        return [Ref(PODS, "a", each.metadata.name) for each in nodes]

    reader = MemoryReader([node("team"), pod("a", "team"), pod("b", "team"), pod("a", "other")])
    facts = gather([Within(PodView, namespaces), Named(PodView, refs)], reader, {})
    assert {ref.name for ref in facts[Within(PodView, namespaces)].entries} == {"a", "b"}
    assert list(facts[Named(PodView, refs)].entries) == [Ref(PODS, "a", "team")]


@pytest.mark.parametrize("gap", [Unknown(Reason.FORBIDDEN, "no"), Inapplicable("not served")])
def test_what_is_not_known_costs_only_what_rests_on_it(gap: Unknown | Inapplicable) -> None:
    facts = gather([pod_names, ALL_NODES], MemoryReader([node("n")], missing={"pods": gap}), {})
    assert facts.state(pod_names) == gap
    assert [each.metadata.name for each in facts[ALL_NODES]] == ["n"]
    with pytest.raises(NotKnown):
        facts[pod_names]


def test_maybe_hands_the_state_on() -> None:
    @given(Maybe(pod_names))
    def told(names: State[frozenset[str]]) -> str:
        return type(names).__name__

    gap = Unknown(Reason.TIMEOUT)
    assert gather([told], MemoryReader([]), {})[told] == "Known"
    assert gather([told], MemoryReader([], missing={"pods": gap}), {})[told] == "Unknown"


def test_a_bug_in_one_fact_costs_that_fact_alone() -> None:
    @given(ALL_PODS)
    def broken(_pods: Each[Ref, PodView]) -> int:
        return 1 // 0

    facts = gather([broken, pod_names], MemoryReader([pod("a")]), {})
    state = facts.state(broken)
    assert isinstance(state, Unknown)
    assert (state.reason, state.what) == (Reason.INTERNAL, "broken")
    assert "ZeroDivisionError" in state.message
    assert facts[pod_names] == {"a"}


def test_a_bug_in_the_reader_costs_that_read_alone() -> None:
    class Broken(MemoryReader):
        def objects(
            self, kind: Kind, labels: str, views: Sequence[type[View]]
        ) -> Sequence[State[Each[Ref, Any]]]:
            if kind is PODS:
                raise RuntimeError("bug")
            return super().objects(kind, labels, views)

    facts = gather([ALL_PODS, ALL_NODES], Broken([node("n")]), {})
    assert isinstance(facts.state(ALL_PODS), Unknown)
    assert isinstance(facts.state(ALL_NODES), Known)


def test_an_interruption_is_passed_on() -> None:
    def interrupt(_fact: Fact[Any], _facts: Facts) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gather([ALL_PODS], MemoryReader([]), {}, interrupt)


def test_arguments_have_defaults_and_the_time_is_the_readers() -> None:
    size = Argument("size", 3)
    facts = gather([size, NOW], MemoryReader([]), {})
    assert facts[size] == 3
    assert facts[NOW] == A_MOMENT
    assert gather([size], MemoryReader([]), {size: 4})[size] == 4


def test_permissions_follow_from_the_declarations() -> None:
    @given(ALL_PODS)
    def refs(_pods: Each[Ref, PodView]) -> Collection[Ref]:
        return []

    @given()
    def attempts() -> Collection[Attempt]:
        return []

    create = Rule("", "pods", "create", namespaced=True)
    assert rules(Named(NodeView, refs), DryRun(attempts, (create,))) == {
        Rule("", "pods", "list", namespaced=True),
        Rule("", "nodes", "get"),
        create,
    }


def test_references_read_like_kubectl() -> None:
    assert str(Ref(PODS, "a", "team")) == "Pod team/a"
    assert Ref(PODS, "a", "team").kubectl == "-n team pods/a"
    assert Ref(NODES, "n").kubectl == "nodes/n"


def test_views_of_one_nodes_pods_share_one_request() -> None:
    where: Argument[str] = Argument("the node", "n-1")
    asked: list[tuple[str, int]] = []

    class OfNodes(MemoryReader):
        def on_node(self, node: str, views: Sequence[type[View]]) -> Sequence[State[Each[Ref, Any]]]:
            asked.append((node, len(views)))
            return super().on_node(node, views)

    here, there = ({**pod(name), "spec": {"nodeName": node}} for name, node in (("a", "n-1"), ("b", "n-2")))
    one, other = OnNode(PodView, where), OnNode(OtherPodView, where)
    facts = gather([one, other], OfNodes([here, there]), {})
    assert asked == [("n-1", 2)]
    assert [ref.name for ref, _ in facts[one].items()] == ["a"]
    assert {str(rule) for rule in rules(one)} == {"list pods"}
