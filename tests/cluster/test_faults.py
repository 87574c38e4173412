"""gpuctl killed, stopped, refused and disturbed at every write. `make test-faults` plays everything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .bed import Bed
from .faults.everything import SUBSET, USUAL, everything, subset
from .faults.matrix import Matrix, Result, matrix
from .faults.table import COMMAND, PAGE
from .faults.writes import name_of

FEW = 16  # nodes for the subset


def objections(results: list[Result]) -> str:
    return "\n".join(f"{each.group}: {each.name}: {each.wrong}" for each in results if each.wrong)


@pytest.mark.timeout(900)
def test_subset(bed: Bed) -> None:
    """One case of each kind, named in SUBSET."""
    chosen = subset()
    assert len(chosen) == len(SUBSET), "each of them is there"
    with matrix(bed, FEW, USUAL) as made:
        results = made.results(chosen)
    assert not objections(results), objections(results)


@pytest.fixture(scope="module")
def whole(bed: Bed) -> Iterator[Matrix]:
    with matrix(bed) as made:
        yield made


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_everything(whole: Matrix) -> None:
    assert whole.known == USUAL
    cases = everything(whole.known)
    results = whole.results(cases)
    assert not objections(results), objections(results)
    assert f"\n{len(cases)} cases, 0 of them wrong" in PAGE.read_text(), f"write it anew: {COMMAND}"


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_a_rolling_change_that_fails_in_the_middle(whole: Matrix) -> None:
    rolled = whole.rolled()
    assert not rolled.wrong, rolled.wrong


def test_what_only_shows_life_is_no_write() -> None:
    test = b'{"op":"test","path":"/spec/holderIdentity","value":"r/s"}'
    renewal = b"[" + test + b',{"op":"add","path":"/spec/renewTime","value":""}]'
    path = "/apis/coordination.k8s.io/v1/namespaces/state/leases/gpuctl-node-a"
    assert not name_of("PATCH", path, renewal)
    assert (
        name_of("PATCH", path, renewal.replace(b"renewTime", b"holderIdentity"))
        == "take over the node's lock"
    )
    assert not name_of("GET", path, b"")
