"""Where a state is taken as a value, which is the only way around "unknown is not green", and why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuctl
from gpuctl.checks import flavor_impact, kueue_webhooks, queue_growth

ROOMS = {
    "flavor_impact": Path(flavor_impact.__file__).parent,
    "kueue": Path(gpuctl.__file__).parent / "kueue",
    "kueue_webhooks": Path(kueue_webhooks.__file__).parent,
    "queue_growth": Path(queue_growth.__file__).parent,
}
USES = {
    # One list that can't be read becomes a hole; the others are still judged.
    "kueue": {
        "MUTATING", "VALIDATING", "CRDS", "API_services_of_Kueue",
        "SERVICES", "DEPLOYMENTS", "PODS", "SLICES", "CONFIG_MAPS",
        # How long to wait, where to try: each with an answer for what is not known.
        "kueue_managers", "NAMESPACES", "NEW_READS",
        # Where the dry run has told nothing, the certificate itself is looked at.
        "DRY_RUN",
        # Touched through value() alone.
        "manager_configurations",
        # What queues rest on, part by part: each touched through told(), value() or as_collection() where a
        # judgement comes to depend on it; a queue in no cohort needs nothing of cohorts.
        "LOCAL_QUEUES", "COHORTS", "FLAVORS", "TOPOLOGIES", "ADMISSION_CHECKS", "WORKLOADS",
        "JOBS", "NODES", "ALL_PODS", "settings_of_the_manager", "CLAIM_TEMPLATES",
        # Only whether there is a Kueue at all: without one, pods and Jobs are none of its concern.
        "QUEUES",
        # Draws the chain from flavor to pods, where it is known.
        "flavors_on_the_machine",
    },
    "flavor_impact": {
        # A manager that does not answer takes the blame for a flavor that stays; unknown takes none.
        "kueue_managers",
        # Only whether there is a Kueue at all: without one, no drill is missing.
        "FLAVORS",
    },
    "queue_growth": {
        # A manager that does not answer takes the blame for what is not looked at; unknown takes none.
        "kueue_managers",
        # Adds to a sentence how much room there is; unknown adds nothing.
        "flavors_on_the_machine",
    },
    "kueue_webhooks": {
        # Only adds to a sentence or a remedy: how many namespaces, which Deployment to restart.
        "NAMESPACES", "kueue_managers",
        # Touched only where it decides, and then through value(): what does not depend on it is judged.
        "manager_configurations",
        # Tells whether a Service is gone; unknown says nothing.
        "SERVICES",
        # A failing read is the finding itself.
        "OLD_READS", "NEW_READS",
        # What is learned is null where it could not be read.
        "CRDS",
    },
}  # fmt: skip


def uses(folder: Path) -> Iterator[str]:
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Maybe":
                yield ast.unparse(node.args[0])


@pytest.mark.parametrize("room", ROOMS)
def test_every_use_is_listed(room: str) -> None:
    assert set(uses(ROOMS[room])) == USES[room]
