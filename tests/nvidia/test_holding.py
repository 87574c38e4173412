"""By what a pod holds a GPU, and what only looks like it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, NotKnown, Reason, Unknown
from gpuctl.nvidia.holding import HoldingPod, ResourceClaim, holds

NO_CLAIMS: Each[Ref, ResourceClaim] = Each()


def pod(spec: dict[str, Any] | None = None, **status: Any) -> HoldingPod:
    made = {
        "metadata": {"name": "x", "namespace": "team-a"},
        "spec": {"containers": [{"name": "main"}], **(spec or {})},
        "status": {"phase": "Running", **status},
    }
    return msgspec.json.decode(msgspec.json.encode(made), type=HoldingPod)


def limited(name: str, count: str = "1", where: str = "containers") -> dict[str, Any]:
    return {where: [{"name": "c", "resources": {"limits": {name: count}}}]}


def seeing(value: str, **more: Any) -> dict[str, Any]:
    return {
        "containers": [{"name": "c", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]}],
        **more,
    }


def mounting(path: str, mount: str = "/x", **container: Any) -> dict[str, Any]:
    return {
        "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": mount}], **container}],
        "volumes": [{"name": "v", "hostPath": {"path": path}}],
    }


PRIVILEGED: dict[str, Any] = {"securityContext": {"privileged": True}}


@pytest.mark.parametrize(
    ("spec", "by"),
    [
        (limited("nvidia.com/gpu", "2"), "2x nvidia.com/gpu"),
        (limited("nvidia.com/gpu.shared"), "1x nvidia.com/gpu.shared"),
        (limited("nvidia.com/mig-3g.40gb"), "1x nvidia.com/mig-3g.40gb"),
        (limited("nvidia.com/team-a-slice"), "1x nvidia.com/team-a-slice"),
        (limited("amd.com/gpu"), "1x amd.com/gpu"),
        (limited("gpu.intel.com/i915"), "1x gpu.intel.com/i915"),
        (limited("acme.io/gpu-large"), "1x acme.io/gpu-large"),
        (limited("nvidia.com/gpu", where="initContainers"), "1x nvidia.com/gpu"),
        (limited("nvidia.com/gpu", where="ephemeralContainers"), "1x nvidia.com/gpu"),
        ({"resources": {"requests": {"nvidia.com/gpu": "4"}}}, "4x nvidia.com/gpu"),
        (seeing("all"), "NVIDIA_VISIBLE_DEVICES=all"),
        (mounting("/dev/nvidia0"), "mount of /dev/nvidia0"),
        (mounting("/dev/nvidiactl"), "mount of /dev/nvidiactl"),
        (mounting("/dev", **PRIVILEGED), "mount of /dev, privileged"),
        (
            mounting("/x", "/var/run/nvidia-container-devices/GPU-1"),
            "mount at /var/run/nvidia-container-devices",
        ),
        ({"runtimeClassName": "nvidia"}, "runtimeClassName nvidia, by which images may see all GPUs"),
    ],
)
def test_each_way_to_a_gpu_is_known(spec: dict[str, Any], by: str) -> None:
    assert holds(pod(spec), NO_CLAIMS) == (by,)
    assert holds(pod(spec, phase="Succeeded"), NO_CLAIMS) == ()


@pytest.mark.parametrize(
    "spec",
    [
        {},
        limited("cpu"),
        limited("nvidia.com/gpu", "0"),
        limited("acme.io/fpga"),
        limited("hugepages-2Mi"),
        seeing("none"),
        seeing("void"),
        seeing("void", runtimeClassName="nvidia"),
        mounting("/dev"),
        mounting("/data/nvidia0"),
        mounting("/dev/fuse", **PRIVILEGED),
        {"runtimeClassName": "gvisor"},
    ],
)
def test_what_only_looks_like_it_is_no_holder(spec: dict[str, Any]) -> None:
    assert holds(pod(spec), NO_CLAIMS) == ()


def test_what_runs_before_counts_the_largest_and_what_runs_beside_counts_all() -> None:
    spec = {
        "containers": [
            *limited("nvidia.com/gpu", "1")["containers"],
            *limited("nvidia.com/gpu", "2")["containers"],
        ],
        **limited("nvidia.com/gpu", "2", "initContainers"),
    }
    assert pod(spec).gpus == {"nvidia.com/gpu": 3}


CLAIM = Ref(ResourceClaim.of, "claim", "team-a")
CLAIMING = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}]}
TEMPLATED = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}


def claim(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Each[Ref, ResourceClaim]:
    made = {
        "metadata": {"name": "claim", "namespace": "team-a"},
        "spec": {"devices": spec},
        "status": status or {},
    }
    return Each.of({CLAIM: msgspec.json.decode(msgspec.json.encode(made), type=ResourceClaim)})


ALLOCATED = {"allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "device": "gpu-0"}]}}}
NIC = {"allocation": {"devices": {"results": [{"driver": "nic.acme.io", "device": "eth1"}]}}}


@pytest.mark.parametrize(
    ("asked", "status", "name"),
    [
        ({}, ALLOCATED, "gpu.nvidia.com"),
        ({"requests": [{"name": "a", "deviceClassName": "mig.nvidia.com"}]}, None, "mig.nvidia.com"),
        ({"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu.amd.com"}}]}, None, "gpu.amd.com"),
        (
            {"requests": [{"name": "a", "firstAvailable": [{"deviceClassName": "gpu.nvidia.com"}]}]},
            None,
            "gpu.nvidia.com",
        ),
    ],
)
def test_a_claim_of_a_gpu_counts(asked: dict[str, Any], status: dict[str, Any] | None, name: str) -> None:
    by = f"ResourceClaim claim ({name})"
    assert holds(pod(CLAIMING), claim(asked, status)) == (by,)
    made = [{"name": "gpu", "resourceClaimName": "claim"}]
    assert holds(pod(TEMPLATED, resourceClaimStatuses=made), claim(asked, status)) == (by,)


def test_a_claim_of_another_device_does_not() -> None:
    asked = {"requests": [{"name": "a", "deviceClassName": "gpu.nvidia.com"}]}
    assert holds(pod(CLAIMING), claim(asked, NIC)) == ()
    assert holds(pod(TEMPLATED), claim(asked, ALLOCATED)) == ()  # none has been made for it yet


def test_a_claim_that_can_t_be_read_leaves_it_open_unless_the_pod_asks_openly() -> None:
    unread: Each[Ref, ResourceClaim] = Each({CLAIM: Unknown(Reason.FORBIDDEN, "no", str(CLAIM))})
    with pytest.raises(NotKnown):
        holds(pod(CLAIMING), unread)
    assert holds(pod({**CLAIMING, **limited("nvidia.com/gpu")}), unread) == ("1x nvidia.com/gpu",)


def test_a_hole_in_the_claims_is_no_matter_for_a_pod_without_any() -> None:
    holed: Each[Ref, ResourceClaim] = Each({}, (Unknown(Reason.FORBIDDEN),))
    assert holds(pod(), holed) == ()
