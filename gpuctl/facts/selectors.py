"""Label selectors, by Kubernetes' rules: those of objects, and those that a person writes down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gpuctl.facts.objects import LabelRequirement, LabelSelector

_SPLIT: Final = re.compile(r",(?![^(]*\))")
_SET: Final = re.compile(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)")
_EQUAL: Final = re.compile(r"([^!=\s]+)\s*(!=|==?)\s*(\S*)")


def parse(text: str) -> LabelSelector:
    """`a=b,c!=d,e in (x, y),f notin (z),g,!h`, as a list request takes it. Raises ValueError."""
    terms = (term.strip() for term in _SPLIT.split(text))
    return LabelSelector(match_expressions=tuple(_requirement(term) for term in terms if term))


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether an object with these labels is selected. An empty selector selects everything."""
    return has_all(labels, selector.match_labels) and all(
        _meets(requirement, labels) for requirement in selector.match_expressions
    )


def has_all(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether all wanted labels are there with the wanted values."""
    return all(labels.get(key) == label for key, label in wanted.items())


def is_empty(selector: LabelSelector) -> bool:
    """Whether the selector selects everything."""
    return not selector.match_labels and not selector.match_expressions


def _requirement(term: str) -> LabelRequirement:
    if found := _SET.fullmatch(term):
        operator = "In" if found[2] == "in" else "NotIn"
        return LabelRequirement(found[1], operator, tuple(value.strip() for value in found[3].split(",")))
    if found := _EQUAL.fullmatch(term):
        return LabelRequirement(found[1], "NotIn" if found[2] == "!=" else "In", (found[3],))
    if re.search(r"[\s=()]", term):
        raise ValueError(f"not a label selector: {term!r}")
    return LabelRequirement(
        term.removeprefix("!").strip(), "DoesNotExist" if term.startswith("!") else "Exists"
    )


def _meets(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    there = requirement.key in labels
    within = labels.get(requirement.key) in requirement.values
    return {
        "In": there and within,
        "NotIn": not (there and within),
        "Exists": there,
        "DoesNotExist": not there,
    }.get(requirement.operator, False)
