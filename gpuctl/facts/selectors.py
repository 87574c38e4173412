"""Label selectors, by Kubernetes' rules."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.facts.objects import LabelRequirement, LabelSelector


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


def _meets(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    there = requirement.key in labels
    within = labels.get(requirement.key) in requirement.values
    return {
        "In": there and within,
        "NotIn": not (there and within),
        "Exists": there,
        "DoesNotExist": not there,
    }.get(requirement.operator, False)
