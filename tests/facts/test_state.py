"""Unknown is not green: `any` is true once found, `all` false once refuted, everything else is not known."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown, attempt, merged

GAP = Unknown(Reason.FORBIDDEN, "no", "pods")
OFF = Inapplicable("switched off")
states = st.one_of(st.builds(Known, st.integers()), st.just(GAP), st.just(OFF))
collections = st.builds(
    Each, st.dictionaries(st.text(max_size=3), states), st.lists(st.just(GAP), max_size=2).map(tuple)
)


def each(*members: State[int], holes: tuple[Unknown, ...] = ()) -> Each[int, int]:
    return Each(dict(enumerate(members)), holes)


@pytest.mark.parametrize("members", list(permutations([Known(1), GAP, Known(2)])))
def test_any_is_true_once_found_and_all_false_once_refuted(members: tuple[State[int], ...]) -> None:
    collection = each(*members)
    assert any(member == 2 for member in collection)
    assert not all(member == 2 for member in collection)


@pytest.mark.parametrize("gaps", [each(Known(1), GAP), each(Known(1), holes=(GAP,))])
def test_what_a_gap_could_change_is_not_known(gaps: Each[int, int]) -> None:
    with pytest.raises(NotKnown):
        any(member == 2 for member in gaps)
    with pytest.raises(NotKnown):
        all(member == 1 for member in gaps)


def test_without_gaps_everything_is_known() -> None:
    collection = each(Known(1), OFF)
    assert list(collection) == [1]
    assert not any(member == 2 for member in collection)


def test_getting_distinguishes_absent_from_unknown() -> None:
    assert each(Known(1)).get(7) is None
    with pytest.raises(NotKnown):
        each(Known(1), GAP).get(1)
    with pytest.raises(NotKnown):
        each(Known(1), holes=(GAP,)).get(7)
    assert each(Known(1), GAP).get(7) is None, "an unknown entry has its own key and is not entry 7"
    with pytest.raises(NotKnown):
        each(Known(1))[7]


def test_mapping_turns_what_touches_the_unknown_into_a_gap() -> None:
    other = each(GAP)
    mapped = each(Known(0), Known(1)).map(lambda number: other[0] if number else number)
    assert mapped.entries == {0: Known(0), 1: GAP}


def test_where_keeps_what_cannot_be_told() -> None:
    other = each(GAP)
    kept = each(Known(0), Known(1), Known(2)).where(
        lambda number: other[0] == 1 if number == 2 else number == 1
    )
    assert kept.entries == {1: Known(1), 2: GAP}


@given(collections)
def test_iterating_gives_all_that_is_known_and_raises_exactly_for_gaps(collection: Each[str, int]) -> None:
    seen: list[int] = []

    def drain() -> None:
        seen.extend(collection)

    outcome = attempt(drain)
    assert isinstance(outcome, Known) == (not any(collection.gaps()))
    if isinstance(outcome, Known):
        assert seen == [member for _, member in collection.known()]


@given(collections, collections)
def test_transformations_never_lose_a_gap(one: Each[str, int], other: Each[str, int]) -> None:
    gaps = len(list(one.gaps()))
    assert len(list(one.map(str).gaps())) == gaps
    assert len(list(one.where(lambda number: number > 0).gaps())) == gaps
    assert set(merged([one, other]).holes) == {*one.holes, *other.holes}
