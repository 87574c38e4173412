"""Guards: what speaks against acting, and that not knowing speaks against it too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import Argument, given
from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Inapplicable, NotKnown, Reason, Unknown
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.guard import Blocker, blocks, guard, notes
from tests.memory import MemoryReader

NODE = Ref(NodeView.of, "gpu-1")
DOES: Argument[str] = Argument("what happens", "")


@given(DOES)
def readable(does: str) -> str:
    if does == "unreadable":
        raise NotKnown(Unknown(Reason.FORBIDDEN, "nodes is forbidden", "nodes"))
    if does == "not served":
        raise NotKnown(Inapplicable("leases are not served"))
    return does


@guard("all is well", given(readable), "--force")
def all_is_well(does: str) -> Iterator[Finding]:
    if "note" in does:
        yield notes(NODE, "worth knowing")
    if "block" in does:
        yield blocks(NODE, "not well", remedy="wait")
    if "gap" in does:
        raise NotKnown(Unknown(Reason.TIMEOUT, "late", "pods"))
    if "aside" in does:
        raise NotKnown(Inapplicable("not here"))
    if "bug" in does:
        raise KeyError("x")


def of(does: str) -> tuple[list[str], list[str]]:
    facts = gather(all_is_well.needs, MemoryReader([]), {DOES: does})
    found = list(all_is_well.blockers(facts))
    assert all(each.guard == all_is_well.id and each.override == "--force" for each in found)
    return [each.message for each in found], list(all_is_well.notes(facts))


CANT = "cannot be told whether all is well: "


@pytest.mark.parametrize(
    ("does", "against", "noted"),
    [
        ("", [], []),
        ("note", [], ["worth knowing"]),
        ("block", ["not well"], []),
        ("block, note", ["not well"], ["worth knowing"]),
        ("gap", [f"{CANT}pods: timeout: late"], []),
        ("block, gap", ["not well", f"{CANT}pods: timeout: late"], []),
        ("unreadable", [f"{CANT}nodes: forbidden: nodes is forbidden"], []),
        ("not served", [f"{CANT}leases are not served"], []),
        ("aside", [f"{CANT}not here"], []),
        ("note, aside", [f"{CANT}not here"], ["worth knowing"]),
        ("bug", [f"{CANT}internal-error: KeyError: 'x'"], []),
    ],
)
def test_what_is_not_known_blocks_like_what_is_false(does: str, against: list[str], noted: list[str]) -> None:
    assert of(does) == (against, noted)


def test_a_blocker_says_all_that_a_person_needs() -> None:
    facts = gather(all_is_well.needs, MemoryReader([]), {DOES: "block"})
    (found,) = all_is_well.blockers(facts)
    expected: Any = Blocker(
        guard=all_is_well.id,
        message="not well",
        object="Node gpu-1",
        look="kubectl get nodes/gpu-1 -o yaml",
        remedy="wait",
        override="--force",
    )
    assert found == expected
    assert (all_is_well.says, all_is_well.override) == ("all is well", "--force")
