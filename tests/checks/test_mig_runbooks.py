"""Which runbook each finding of mig-consistency names, and that its remedy says how to plan it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpuctl.runbook.catalogue import BOOKS, runbook
from tests.builders.gpus import GpuCluster, cluster, judgements, pod, sliced
from tests.cluster.bed.simulated import gpu_node

HALVES = ("3g.40gb",) * 2
STATE = "nvidia.com/mig.config.state"
DEPLOY = "nvidia.com/gpu.deploy.device-plugin"
SLICE = "nvidia.com/mig-1g.10gb"
STANDS_STILL = {
    "manager": "nvidia-mig-manager",
    "time": "2026-11-30T08:00:00Z",
    "fieldsV1": {"f:metadata": {"f:labels": {f"f:{STATE}": {}, f"f:{DEPLOY}": {}}}},
}


def in_state(state: str, **labels: str) -> GpuCluster:
    return cluster(sliced(extra={STATE: state, **labels}), written=[STANDS_STILL])


CASES: Mapping[str, tuple[GpuCluster, str, str | None]] = {
    "failed": (in_state("failed"), "MIG001", "mig-recover"),
    "pending": (in_state("pending"), "MIG002", "mig-recover"),
    "rebooting": (in_state("rebooting"), "MIG003", "mig-recover"),
    "paused": (in_state("success", **{DEPLOY: "paused-for-mig-change"}), "MIG004", "mig-recover"),
    "upgrade": (in_state("success", **{DEPLOY: "paused-for-driver-upgrade"}), "MIG004", None),
    "other geometry": (
        cluster(gpu_node("gpu-1", profiles=[HALVES], config="all-1g.10gb")), "MIG015", "mig-recover"),
    "first GPU alone": (
        cluster(gpu_node("gpu-1", profiles=[("1g.10gb",) * 7] * 2, config="first-only")), "MIG015", None),
    "no such name": (cluster(sliced(config="all-9g.90gb")), "MIG016", "mig-reconfigure"),
    "impossible": (cluster(sliced(config="all-1g.5gb")), "MIG017", "mig-reconfigure"),
    "empty": (cluster(gpu_node("gpu-1", profiles=[()], config="all-1g.10gb")), "MIG011", "mig-reconfigure"),
    "too little": (cluster(replace(sliced(), resources={SLICE: 3})), "MIG007", "device-plugin-restart"),
    "stale": (
        cluster(replace(sliced(), resources={"nvidia.com/mig-3g.40gb": 2})),
        "MIG009", "device-plugin-restart"),
    "unhealthy": (cluster(sliced(), allocatable={SLICE: 6}), "MIG008", "device-plugin-restart"),
    "not offered": (
        cluster(sliced(), extra=(pod("train-0", "", asks={"nvidia.com/mig-2g.20gb": 1}),)),
        "MIG032", None),  # of which node, a person has to say
    "typed wrong": (
        cluster(sliced(), extra=(pod("train-0", "", asks={"nvidia.com/gpus": 1}),)), "MIG032", None),
}  # fmt: skip


def twice(of: GpuCluster) -> GpuCluster:
    """Read again, it is the same."""
    return replace(of, later=of)


@pytest.mark.parametrize("case", CASES)
def test_a_finding_names_the_runbook_that_cures_it(case: str) -> None:
    of, code, book = CASES[case]
    findings = [each for judged in judgements(twice(of)).values() for each in judged.findings]
    meant = {each.runbook for each in findings if each.code.id == code}
    assert meant == {book}, [(each.code.id, each.message) for each in findings]
    for each in findings:
        named(each)


def named(finding: Any) -> None:
    """What is named exists, and can be planned as the remedy says."""
    if finding.runbook is None:
        return
    assert finding.runbook in BOOKS
    (command, *_) = re.findall(rf"`(gpuctl plan {finding.runbook} [^`]*)`", finding.remedy)
    flags = {each.flag for each in runbook(finding.runbook).flags}
    assert set(re.findall(r"--[a-z-]+", command)) <= flags


def test_a_healthy_cluster_names_none() -> None:
    findings = [each for judged in judgements(twice(cluster(sliced()))).values() for each in judged.findings]
    assert [each.runbook for each in findings if each.weight != "info"] == []
