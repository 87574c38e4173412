"""Commands on nodes as facts: those of one set of nodes share a call; what is read later is read again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from gpuctl.facts.fact import Command, Later, given, rules
from gpuctl.facts.gather import gather
from gpuctl.facts.nodes import Output, Target
from gpuctl.facts.state import Each, Inapplicable, Known, Reason, State, Unknown
from tests.memory import MemoryReader


@given()
def all_nodes() -> Collection[Target]:
    return (Target("a"), Target("b"))


@given()
def no_nodes() -> Collection[Target]:
    return ()


def length(output: Output) -> int:
    if not output.stdout:
        raise ValueError("nothing was printed")
    return len(output.stdout)


ONE = Command("one", all_nodes, length)
TWO = Command("two", all_nodes, length)


class Counting(MemoryReader):
    """Counts the calls to nodes, and the waits."""

    def __init__(self, told: Any) -> None:
        super().__init__([], told=told)
        self.calls: list[list[str]] = []
        self.waits: list[float] = []

    def commands(
        self, wanted: Sequence[tuple[str, Callable[[Output], Any]]], targets: Collection[Target]
    ) -> Sequence[State[Each[str, Any]]]:
        self.calls.append([name for name, _ in wanted])
        return super().commands(wanted, targets)

    def later(self, seconds: float) -> State[None]:
        self.waits.append(seconds)
        return Known(None)


TOLD: dict[tuple[str, str], Output | str | Unknown] = {
    ("a", "one"): "x",
    ("b", "one"): "xyz",
    ("a", "two"): "",
    ("b", "two"): Unknown(Reason.TIMEOUT),
}


def test_commands_on_the_same_nodes_share_a_call() -> None:
    reader = Counting(TOLD)
    facts = gather([ONE, TWO], reader, {})
    assert reader.calls == [["one", "two"]]
    assert dict(facts[ONE].items()) == {"a": 1, "b": 3}


def test_what_can_t_be_read_is_unknown_for_its_node_alone() -> None:
    entries = gather([ONE, TWO], Counting(TOLD), {})[TWO].entries
    assert {node: state.reason for node, state in entries.items() if isinstance(state, Unknown)} == {
        "a": Reason.MALFORMED,
        "b": Reason.TIMEOUT,
    }


def test_a_second_read_waits_and_an_empty_one_does_not() -> None:
    reader = Counting(TOLD)
    again = Command("one", Later(all_nodes, 10), length)
    gather([again], reader, {})
    assert reader.waits == [10]
    gather([Command("one", Later(no_nodes, 10), length)], reader, {})
    assert reader.waits == [10]


def test_of_a_record_there_is_no_later() -> None:
    again = Command("one", Later(all_nodes, 10), length)
    assert isinstance(gather([again], MemoryReader([], told=TOLD), {}).state(again), Inapplicable)


def test_commands_take_the_permission_to_exec() -> None:
    assert {str(rule) for rule in rules(ONE)} == {"create pods/exec", "get pods/exec"}
