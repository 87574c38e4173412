"""Assertions: plain facts that should hold, judged per subject."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, TypeVarTuple

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import Fact, Given, given
from gpuctl.facts.state import Each

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")
Ts = TypeVarTuple("Ts")


class Strength(StrEnum):
    """required: a run that can't judge it is incomplete. proof: it may be left unproven, which is said."""

    REQUIRED = "required"
    PROOF = "proof"


@dataclass(frozen=True, eq=False)
class Assertion:
    """A fact that should hold, for every subject. `judge` yields what refutes it."""

    id: str
    says: str
    strength: Strength
    subjects: Fact[Each[Any, Any]]
    given: tuple[Fact[Any], ...]
    judge: Callable[..., Iterator[Finding]]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        """Every fact the judgement rests on."""
        return (self.subjects, *self.given)


def every(
    subjects: Fact[Each[K, S]],
    says: str,
    given: Given[*Ts],
    strength: Strength = Strength.REQUIRED,
) -> Callable[[Callable[[S, *Ts], Iterator[Finding]]], Assertion]:
    """Makes an assertion about each subject from a function that yields the findings of one."""

    def assertion(judge: Callable[[S, *Ts], Iterator[Finding]]) -> Assertion:
        return Assertion(_id(judge), says, strength, subjects, given.facts, judge)

    return assertion


def holds(
    says: str, given: Given[*Ts], strength: Strength = Strength.REQUIRED
) -> Callable[[Callable[[*Ts], Iterator[Finding]]], Assertion]:
    """Makes an assertion about the cluster as a whole."""

    def assertion(judge: Callable[[*Ts], Iterator[Finding]]) -> Assertion:
        return Assertion(
            _id(judge), says, strength, THE_CLUSTER, given.facts, lambda _, *facts: judge(*facts)
        )

    return assertion


@given()
def the_cluster() -> Each[str, None]:
    return Each.of({"cluster": None})


THE_CLUSTER = the_cluster


def _id(judge: Callable[..., Any]) -> str:
    return judge.__name__.replace("_", "-")
