"""Public reports of MIG gone wrong, as snapshots: each is diagnosed; what is so by design is silent."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.audit.judge import judge
from gpuctl.checks.mig_consistency import CHECK
from gpuctl.cluster.snapshot import open_snapshot
from gpuctl.facts.gather import gather
from gpuctl.facts.nodes import Output
from tests.builders.gpus import CONFIG, OPERATOR, SEVEN, GpuCluster, cluster, messages, pod, sliced
from tests.cluster.bed.simulated import GpuNode, gpu_node
from tests.cluster.standins import faults, nvidia_smi
from tests.cluster.standins.state import A100, H100, Gpu

PREFIX = "nvidia.com/"
CAPTURE = """\
apiVersion: gpuctl.dev/v1
kind: Snapshot
capturedAt: 2026-11-30T10:00:00Z
served: {}
complete: ["*"]
"""


def snapshot(of: GpuCluster, path: Path) -> Path:
    """The cluster as a folder."""
    (path / "resources").mkdir(parents=True)
    (path / "capture.yaml").write_text(CAPTURE)
    listed = {"apiVersion": "v1", "kind": "List", "items": of.items}
    (path / "resources" / "all.json").write_text(json.dumps(listed))
    for (node, command), told in of.answers.items():
        assert isinstance(told, Output)
        folder = path / "nodes" / node
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{command}.json" if command == "kubelet-devices" else f"{command}.txt"
        (folder / name).write_text(told.stdout)
        if told.code or told.stderr:
            (folder / f"{command}.err").write_text(f"exit {told.code}\n{told.stderr}")
    return path


def diagnosed(of: GpuCluster, path: Path) -> set[str]:
    """The codes that are found in the snapshot of a cluster."""
    facts = gather(CHECK.needs, open_snapshot(snapshot(of, path)), {})
    return set(messages((judge(each, facts) for each in CHECK.assertions), info=False))


def with_(node: GpuNode, labels: dict[str, str | None] | None = None, **counts: int | None) -> GpuNode:
    extra = {PREFIX + name: text for name, text in (labels or {}).items()}
    resources = {PREFIX + name.replace("__", ".").replace("_", "-"): count for name, count in counts.items()}
    return replace(node, extra={**node.extra, **extra}, resources={**node.resources, **resources})


def of_silicon(node: GpuNode, *gpus: Gpu) -> GpuNode:
    fresh = replace(node, state=replace(node.state, gpus=gpus))
    kept: dict[str, str | None] = dict(node.labels)
    extra = {name: kept.get(name) for name in {*fresh.labels, *kept} if name.startswith(PREFIX)}
    amounts = {name: int(count) for name, count in node.capacity.items() if name.startswith(PREFIX)}
    gone = {name: None for name in fresh.capacity if name.startswith(PREFIX) and name not in amounts}
    return replace(fresh, extra=extra, resources={**gone, **amounts})


def a100(mig: tuple[str, ...] | None, index: int = 0, **changes: Any) -> Gpu:
    return replace(A100.gpu(index, mig, node="n"), **changes)


def hopper(mig: tuple[str, ...] | None, index: int = 0, **changes: Any) -> Gpu:
    return replace(H100.gpu(index, mig, node="n"), **changes)


FIVE = ("1g.5gb",) * 7
PLUGIN = "nvidia-device-plugin-daemonset"
EIGHT = gpu_node("n", profiles=[None] * 8)


def down(name: str) -> dict[str, Any]:
    """The device plugin's pod, crashing."""
    return crashing("plugin", name, PLUGIN)


def crashing(name: str, node: str, app: str) -> dict[str, Any]:
    """The pod of an operand, crashing."""
    return pod(
        name, node, namespace=OPERATOR, labels={"app": app},
        status={"phase": "Running",
                "containerStatuses": [{"name": "main", "ready": False, "restartCount": 31}]},
    )  # fmt: skip


# By its number in the collection: the report as a cluster, and codes that must be among those found.
REPORTS: dict[str, tuple[GpuCluster, set[str]]] = {
    "1 success, INVALID, a profile of another card": (
        cluster(
            with_(
                gpu_node("n", strategy="single", profiles=[[]], config="all-1g.5gb"),
                {"mig.config.state": "success"},
            )
        ),
        {"MIG005", "MIG017"},
    ),
    "2 the wrong mix of profiles in capacity": (
        cluster(
            with_(
                gpu_node("n", profiles=[SEVEN, SEVEN], config="all-1g.10gb"), mig_1g__10gb=5, mig_2g__20gb=3
            )
        ),
        {"MIG007", "MIG009"},
    ),
    "4 a custom name that does not exist": (
        cluster(with_(EIGHT, {"mig.config": "4g.20gb", "mig.config.state": "failed"})),
        {"MIG001", "MIG016"},
    ),
    "5 7g.80gb where the driver says 7g.79gb": (
        cluster(
            gpu_node("n", profiles=[[]], config="custom"),
            config=CONFIG.replace('"3g.40gb": 1', '"7g.79gb": 1'),
        ),
        {"MIG017"},
    ),
    "7 strategy single over several profiles": (
        cluster(
            gpu_node("n", strategy="single", profiles=[["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]]),
            without=frozenset({"device-plugin"}),
            extra=(down("n"),),
        ),
        {"MIG014", "MIG030"},
    ),
    "8 a plugin too old for the card, feature discovery crashing": (
        cluster(
            with_(
                of_silicon(gpu_node("n", profiles=[None], config="all-1g.10gb"), hopper(None)),
                {"gpu.product": None, "gpu.count": None},
            ),
            without=frozenset({"gpu-feature-discovery"}),
            extra=(crashing("gfd", "n", "gpu-feature-discovery"),),
        ),
        {"MIG015", "MIG030"},
    ),
    "10 MIG was on before the operator came": (
        cluster(
            with_(
                sliced("n"),
                {"mig.config": None, "mig.config.state": None, "gpu.deploy.mig-manager": None},
            ),
            without=frozenset({"mig-manager"}),
        ),
        {"MIG019"},
    ),
    "11 an edit of the operator's ConfigMap that was undone": (
        cluster(with_(sliced("n"), {"mig.config": "my-layout", "mig.config.state": "failed"})),
        {"MIG001", "MIG016"},
    ),
    "13 a node that joined again has no manager": (
        cluster(sliced("n"), without=frozenset({"mig-manager"})),
        {"MIG019"},
    ),
    "14 labels written by hand, capacity unmoved": (
        cluster(
            with_(
                gpu_node("n", strategy="single", model=A100, profiles=[FIVE, FIVE], config="all-1g.5gb"),
                {"mig-1g.5gb.count": "14"},
                mig_1g__5gb=0,
            )
        ),
        {"MIG018"},
    ),
    "16 seven of eight GPUs": (
        cluster(of_silicon(EIGHT, *(hopper(None, index) for index in range(7)))),
        {"MIG020"},
    ),
    "22 a plugin outside of the pause protocol": (
        cluster(with_(sliced("n"), gpu=1, mig_1g__10gb=0)),
        {"MIG007"},
    ),
    "23 pending enable, failed": (
        cluster(
            with_(
                of_silicon(
                    gpu_node("n", model=A100, profiles=[None], config="all-1g.5gb"),
                    a100(None, mig_pending="Enabled"),
                ),
                {"mig.config.state": "failed"},
            )
        ),
        {"MIG001", "MIG010"},
    ),
    "28 pending after a reboot, no product": (
        cluster(with_(gpu_node("n", strategy="single", profiles=[[]], config="all-1g.10gb"),
                      {"mig.config.state": "pending", "gpu.product": None,
                       "gpu.deploy.gpu-feature-discovery": "paused-for-mig-change"})),
        {"MIG002"},
    ),
    "29 a virtual GPU whose mode is pending": (
        cluster(
            with_(
                of_silicon(gpu_node("n", profiles=[None]), hopper(None, mig_pending="Enabled")),
                {"vgpu.present": "true"},
            )
        ),
        {"MIG010"},
    ),
    "31 paused for an upgrade that was aborted": (
        cluster(with_(sliced("n"), {"gpu.deploy.device-plugin": "paused-for-driver-upgrade"})),
        {"MIG004"},
    ),
    "32 seven of eight after XID 94": (
        cluster(gpu_node("n", profiles=[None] * 8), allocatable={"nvidia.com/gpu": 7}),
        {"MIG008"},
    ),
    "34 seven slices that the labels do not know": (
        cluster(
            with_(
                of_silicon(
                    gpu_node("n", strategy="single", model=A100, profiles=[None], config="all-1g.5gb"),
                    a100(FIVE),
                ),
            )
        ),
        {"MIG006", "MIG007"},
    ),
    "35 devices that are parts": (
        cluster(gpu_node("n", model=A100, profiles=[["1c.3g.20gb", "1c.3g.20gb"]], config="custom")),
        {"MIG013"},
    ),
    "37 slices gone after a reboot": (
        cluster(of_silicon(sliced("n"), hopper(None))),
        {"MIG015", "MIG006"},
    ),
    "38 MIG on, no slices": (
        cluster(gpu_node("n", strategy="single", profiles=[[]], config="all-1g.10gb")),
        {"MIG011"},
    ),
    "40 a device that is unhealthy for ever": (
        cluster(gpu_node("n", profiles=[None]), allocatable={"nvidia.com/gpu": 0}),
        {"MIG008"},
    ),
    "41 new slices are not advertised": (
        cluster(with_(sliced("n"), gpu=1, mig_1g__10gb=0)),
        {"MIG007"},
    ),
    "43 one of seven slices unhealthy after an XID": (
        cluster(sliced("n"), allocatable={"nvidia.com/mig-1g.10gb": 6}),
        {"MIG008"},
    ),
    "44 a GPU in use, and no reboot": (
        cluster(
            with_(
                of_silicon(gpu_node("n", model=A100, profiles=[None], config="all-1g.5gb"), a100(None)),
                {"mig.config.state": "failed"},
            )
        ),
        {"MIG001", "MIG015"},
    ),
    "46 a configuration for one GPU of two": (
        cluster(
            with_(
                gpu_node("n", profiles=[None, SEVEN], config="custom"),
                {"mig.config.state": "failed"},
            ),
            config=CONFIG.replace("devices: all, mig-enabled: true, mig-devices: {\"3g.40gb\": 1}",
                                  "devices: [1], mig-enabled: true, mig-devices: {\"1g.10gb\": 7}"),
        ),
        {"MIG001", "MIG015"},
    ),
    "47 a reset that nvidia_drm blocks": (
        cluster(of_silicon(gpu_node("n", model=A100, profiles=[None]), a100(None, mig_pending="Enabled"))),
        {"MIG010"},
    ),
    "49 a configuration that predates the card": (
        cluster(with_(EIGHT, {"mig.config": "all-1g.18gb", "mig.config.state": "failed"})),
        {"MIG016"},
    ),
    "50 -lci without permission": (
        cluster(sliced("n").failing(faults.LCI_PERMISSIONS)),
        {"MIG021"},
    ),
    "52 a remnant": (
        cluster(
            sliced("n"),
            told={("n", "nvidia-smi-mig-lgi"): Output("".join((
                "+---------+\n|   0  MIG 1g.10gb*          19        7          0:1     |\n",
                *(f"|   0  MIG 1g.10gb           19        {n}          {n}:1     |\n" for n in range(1, 7)),
                "+---------+\n",
            )))},
        ),
        {"MIG012"},
    ),
    "53 a mixed layout where only strategy single is": (
        cluster(gpu_node("n", strategy="single", profiles=[["3g.40gb", "1g.10gb"]])),
        {"MIG014"},
    ),
    "56 a container that lost its devices": (
        cluster(sliced("n").failing(faults.NVML_UNKNOWN)),
        {"MIG021"},
    ),
}  # fmt: skip
DESIGNED: dict[str, GpuCluster] = {
    "12 all-enabled leaves GPUs empty on purpose": cluster(
        gpu_node("n", profiles=[[], []], config="all-enabled")
    ),
    "19 gpu.count stays 8 with strategy mixed": cluster(
        gpu_node("n", profiles=[["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]] * 8)
    ),
    "20 two of eight sliced, gpu.count is 8": cluster(
        with_(gpu_node("n", profiles=[SEVEN, SEVEN, *[None] * 6], config="two-of-eight"), {"gpu.count": "8"})
    ),
}


@pytest.mark.parametrize("report", REPORTS)
def test_reports_are_diagnosed(report: str, tmp_path: Path) -> None:
    of, codes = REPORTS[report]
    assert codes <= diagnosed(of, tmp_path / "snapshot")


@pytest.mark.parametrize("report", DESIGNED)
def test_what_is_so_by_design_is_silent(report: str, tmp_path: Path) -> None:
    assert diagnosed(DESIGNED[report], tmp_path / "snapshot") == set()


def test_a_node_that_was_not_probed_is_not_proven(tmp_path: Path) -> None:
    path = snapshot(cluster(sliced("n")), tmp_path / "snapshot")
    for file in (path / "nodes" / "n").iterdir():
        file.unlink()
    (path / "nodes" / "n" / "probe.yaml").write_text("at: 2026-11-30T10:00:00Z\nfailed: no-pod\n")
    facts = gather(CHECK.needs, open_snapshot(path), {})
    results = {each.id: judge(each, facts) for each in CHECK.assertions}
    assert results["true-capacity"].verdict == "not-proven"
    assert results["kept-promises"].verdict == "pass"


def test_the_tables_that_people_keep_tell_memory_too(tmp_path: Path) -> None:
    path = snapshot(cluster(sliced("n")), tmp_path / "snapshot")
    folder = path / "nodes" / "n"
    for name in ("nvidia-smi-q-x.txt", "nvidia-smi-mig-lgi.txt", "nvidia-smi-mig-lci.txt"):
        (folder / name).unlink()
    state = json.loads(json.dumps(asdict(sliced("n").state)))
    (folder / "nvidia-smi.txt").write_text(nvidia_smi.run(state, [])[0])
    facts = gather(CHECK.needs, open_snapshot(path), {})
    results = {each.id: judge(each, facts) for each in CHECK.assertions}
    assert results["kept-memory"].verdict == "pass"
    assert results["true-capacity"].verdict == "pass"
