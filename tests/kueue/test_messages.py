"""What Kueue has said over the releases, and what it means."""

from __future__ import annotations

import pytest

from gpuctl.kueue.messages import Saying, only, sayings

FRAME = "couldn't assign flavors to pod set main: "


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            FRAME + "insufficient unused quota for nvidia.com/gpu in flavor h100, 4 more needed",
            {Saying.NO_QUOTA},
        ),
        (
            FRAME
            + "insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets requests "
            "(0) + current podset request (16) > maximum capacity (8)",
            {Saying.TOO_LARGE},
        ),
        (
            FRAME + "insufficient quota for nvidia.com/gpu in flavor a, request > maximum capacity (16 > 8)",
            {Saying.TOO_LARGE},
        ),
        (FRAME + "insufficient quota for cpu in flavor a in ClusterQueue", {Saying.TOO_LARGE}),
        (
            FRAME + "insufficient unused quota in cohort for cpu in flavor a, 3 more needed",
            {Saying.NO_QUOTA},
        ),
        (FRAME + "borrowing limit for cpu in flavor flav-1 exceeded", {Saying.BORROWING_LIMIT}),
        (FRAME + "resource ephemeral-storage unavailable in ClusterQueue", {Saying.NOT_COVERED}),
        (FRAME + "flavor spot not found", {Saying.NO_FLAVOR}),
        (FRAME + "untolerated taint {gpu true NoSchedule <nil>} in flavor h100", {Saying.TAINT}),
        (FRAME + "flavor h100 doesn't match node affinity", {Saying.AFFINITY}),
        (
            FRAME
            + "flavor a doesn't match node affinity, insufficient unused quota for cpu in flavor b, 1 more",
            {Saying.AFFINITY, Saying.NO_QUOTA},
        ),
        (FRAME + "no topology domains at level: oci.oraclecloud.com/rdma.local_block_id", {Saying.TOPOLOGY}),
        ('topology "racks" allows to fit only 1 out of 2 pod(s)', {Saying.TOPOLOGY}),
        ("Workload no longer fits after processing another workload", {Saying.OTHERS_FIRST}),
        ("waiting for all admitted workloads to be in PodsReady condition", {Saying.PODS_READY}),
        ("ClusterQueue vision is inactive", {Saying.QUEUE}),
        ("LocalQueue main doesn't exist", {Saying.QUEUE}),
        ("workload namespace doesn't match ClusterQueue selector", {Saying.NAMESPACE}),
        ("resources validation failed: requests exceed it limits", {Saying.INVALID}),
        ("resources didn't satisfy LimitRange constraints: …", {Saying.LIMIT_RANGE}),
        (
            "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled",
            {Saying.CLAIM},
        ),
        ("The workload is deactivated", {Saying.INACTIVE}),
        (
            "Bypassed scheduling evaluation because an equivalent workload recently failed",
            {Saying.NOT_LOOKED},
        ),
        ("something quite new", {Saying.UNCLASSIFIED}),
        ("", set()),
    ],
)
def test_sayings(message: str, expected: set[Saying]) -> None:
    assert sayings(message) == expected


def test_only() -> None:
    assert only("no topology domains at level: x", Saying.TOPOLOGY)
    assert not only("", Saying.TOPOLOGY)
    assert not only(
        "topology x, insufficient unused quota for cpu in flavor b, 1 more needed", Saying.TOPOLOGY
    )
