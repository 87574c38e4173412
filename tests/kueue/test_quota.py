"""The tree of quota: Kueue's rules of lending and borrowing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.kueue.quota import Limits, Member, Room, Tree

CELL = ("h100", "nvidia.com/gpu")


def queue(
    name: str,
    nominal: int,
    used: int = 0,
    *,
    parent: str = "",
    borrowing: int | None = None,
    lending: int | None = None,
) -> Member:
    return Member(name, parent, {CELL: Limits(nominal, borrowing, lending)}, {CELL: used})


def cohort(name: str, parent: str = "", nominal: int = 0, lending: int | None = None) -> Member:
    return Member(name, parent, {CELL: Limits(nominal, None, lending)}, is_queue=False)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([queue("a", 8, 3)], Room(8, 5)),
        ([queue("a", 8, 10)], Room(8, -2)),
        ([queue("a", 0, parent="all"), queue("b", 8, parent="all")], Room(8, 8)),
        ([queue("a", 0, parent="all"), queue("b", 8, 6, parent="all")], Room(8, 2)),
        ([queue("a", 2, parent="all", borrowing=3), queue("b", 8, parent="all")], Room(5, 5)),
        ([queue("a", 2, 4, parent="all", borrowing=3), queue("b", 8, parent="all")], Room(5, 1)),
        ([queue("a", 2, parent="all", borrowing=0), queue("b", 8, parent="all")], Room(2, 2)),
        ([queue("a", 2, parent="all"), queue("b", 8, parent="all", lending=3)], Room(5, 5)),
        ([queue("a", 2, parent="all"), queue("b", 8, parent="all", lending=0)], Room(2, 2)),
        ([queue("a", 2, parent="all"), queue("b", 8, 8, parent="all", lending=3)], Room(5, 2)),
        ([queue("a", 8, parent="all"), queue("b", 0, 6, parent="all")], Room(8, 2)),
        ([queue("a", 8, parent="all", lending=0), queue("b", 0, 0, parent="all")], Room(8, 8)),
        # A cohort's own quota comes on top of its members'.
        ([queue("a", 1, parent="all"), cohort("all", nominal=4)], Room(5, 5)),
        # Two levels; the inner cohort keeps a part of what it has.
        (
            [
                queue("a", 1, parent="left"),
                cohort("left", "root"),
                cohort("right", "root", lending=2),
                queue("b", 8, parent="right"),
            ],
            Room(3, 3),
        ),
    ],
)
def test_room(members: list[Member], expected: Room) -> None:
    assert Tree(tuple(members)).room("a", CELL) == expected


def test_an_inactive_queue_lends_nothing() -> None:
    tree = Tree((queue("a", 0, parent="all"), queue("b", 8, parent="all")))
    assert tree.without({"b"}).room("a", CELL) == Room(0, 0)


@pytest.mark.parametrize("parents", [{"x": "x"}, {"x": "y", "y": "x"}, {"x": "y", "y": "z", "z": "y"}])
def test_a_cycle_ends_and_has_no_room(parents: dict[str, str]) -> None:
    tree = Tree((queue("a", 8, parent="x"), *(cohort(name, parent) for name, parent in parents.items())))
    assert tree.room("a", CELL) == Room(0, 0)
    assert tree.loop("x")
    assert tree.peers("a") == ()


def test_a_cycle_is_named_from_the_same_place_everywhere() -> None:
    tree = Tree((cohort("b", "c"), cohort("c", "a"), cohort("a", "b"), queue("q", 1, parent="c")))
    assert tree.loop("a") == tree.loop("b") == tree.loop("c") == ("a", "b", "c")


SMALL = st.integers(0, 9)
MAYBE = st.none() | SMALL


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Up to three levels of cohorts with a few queues."""
    cohorts = [
        cohort(f"c{number}", f"c{draw(st.integers(0, number - 1))}" if number else "", draw(SMALL))
        for number in range(draw(st.integers(1, 4)))
    ]
    names = [each.name for each in cohorts]
    queues = []
    for number in range(draw(st.integers(1, 5))):
        nominal = draw(SMALL)
        lending = draw(st.none() | st.integers(0, nominal))
        queues.append(
            queue(
                f"q{number}",
                nominal,
                draw(SMALL),
                parent=draw(st.sampled_from(names)),
                borrowing=draw(MAYBE),
                lending=lending,
            )
        )
    return Tree((*cohorts, *queues))


@given(trees())
def test_what_is_free_is_no_more_than_what_there_is(tree: Tree) -> None:
    for member in tree.members:
        if member.is_queue:
            room = tree.room(member.name, CELL)
            assert room.free <= room.most
            assert room.most >= 0


@given(trees(), st.integers(1, 5))
def test_more_quota_never_takes_room_away(tree: Tree, more: int) -> None:
    first = next(each for each in tree.members if each.is_queue)
    limits = first.limits[CELL]
    raised = Member(
        first.name,
        first.parent,
        {CELL: Limits(limits.nominal + more, limits.borrowing, limits.lending)},
        first.used,
    )
    richer = Tree(tuple(raised if each.key == first.key else each for each in tree.members))
    for member in tree.members:
        if member.is_queue:
            assert richer.room(member.name, CELL).most >= tree.room(member.name, CELL).most


@given(trees())
def test_nothing_is_borrowed_where_nothing_is_used(tree: Tree) -> None:
    idle = Tree(
        tuple(Member(each.name, each.parent, each.limits, {}, each.is_queue) for each in tree.members)
    )
    for member in idle.members:
        assert idle.borrowed(member, CELL) == 0
