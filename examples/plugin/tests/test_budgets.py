"""Whole clusters as gpuctl reads them from a folder: good ones, and the same with one thing changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpuctl_disruption_budgets import CHECK
from gpuctl_disruption_budgets.codes import ALL

from gpuctl.audit.judge import Judgement, Verdict, judge
from gpuctl.cluster.snapshot import open_snapshot
from gpuctl.facts.gather import gather

CAPTURE = """
apiVersion: gpuctl.dev/v1
kind: Snapshot
capturedAt: 2026-11-30T10:00:00Z
complete: [poddisruptionbudgets.policy]
"""


def budget(spec: dict[str, Any], **status: int) -> dict[str, Any]:
    counted = {"disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "llm", "namespace": "serving"},
        "spec": spec,
        "status": {**counted, **status},
    }


def judged(folder: Path, *objects: dict[str, Any], capture: str = CAPTURE) -> Judgement:
    (folder / "capture.yaml").write_text(capture)
    (folder / "resources").mkdir()
    (folder / "resources" / "all.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    )
    (assertion,) = CHECK.assertions
    return judge(assertion, gather(CHECK.needs, open_snapshot(folder), {}))


@pytest.mark.parametrize(
    ("spec", "status", "code"),
    [
        ({"maxUnavailable": 1}, {"disruptionsAllowed": 1}, ""),
        ({"maxUnavailable": 0}, {"desiredHealthy": 3}, "PDB001"),
        ({"maxUnavailable": "0%"}, {}, "PDB001"),
        ({"minAvailable": 3}, {"desiredHealthy": 3}, "PDB001"),
        ({"minAvailable": 3}, {"desiredHealthy": 3, "expectedPods": 4, "disruptionsAllowed": 1}, ""),
        ({"maxUnavailable": 1}, {"currentHealthy": 2}, "PDB002"),
        ({"maxUnavailable": 0}, {"expectedPods": 0}, ""),
    ],
)
def test_each_finding_and_its_near_miss(
    tmp_path: Path, spec: dict[str, Any], status: dict[str, int], code: str
) -> None:
    judgement = judged(tmp_path, budget(spec, **status))
    assert [finding.code.id for finding in judgement.findings] == ([code] if code else [])


def test_without_budgets_the_question_does_not_arise(tmp_path: Path) -> None:
    assert judged(tmp_path).verdict is Verdict.NOT_APPLICABLE


def test_what_was_not_read_is_unknown_and_not_fine(tmp_path: Path) -> None:
    forbidden = CAPTURE.replace("complete: [poddisruptionbudgets.policy]", "missing:") + (
        "- {resource: poddisruptionbudgets.policy, reason: forbidden}\n"
    )
    assert judged(tmp_path, capture=forbidden).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("code", ALL, ids=lambda code: code.id)
def test_each_code_is_explained(code: Any) -> None:
    assert f"## {code.id}: {code.title}\n" in CHECK.readme()
