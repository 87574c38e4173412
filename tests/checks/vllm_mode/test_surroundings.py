"""GPUs, slices, variables, Services, rollouts, releases: each finding and its silent twin."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from gpuctl.facts.state import Reason, Unknown
from tests.builders import vllm as make
from tests.checks.judging import CHAT
from tests.checks.judging import judged_engines as judged

SLICE = {"nvidia.com/mig-3g.40gb": 1}
SIZED = ("m", "--max-num-seqs", "8", "--max-num-batched-tokens", "2048")


def codes(*items: Any, **more: Any) -> list[str]:
    return [code for code in judged(*items, **more).codes if code != "VLM003"]


def one(**fields: Any) -> Any:
    return make.pod(CHAT, make.container(**fields))


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        (one(gpus={}), ["VLM040"]),
        (one(gpus={"nvidia.com/gpu": 1}), []),
        (one(gpus={"amd.com/gpu": 1}), []),
        (one(gpus={"huawei.com/Ascend910": 8}), []),
        (one(gpus={"aws.amazon.com/neuroncore": 2}), []),
        (one(gpus={"habana.ai/gaudi": 1}), []),
        (one(gpus={"ibm.com/spyre_pf": 1}), []),
        (one(gpus={"gpu.intel.com/i915": 1}), []),
        (one(gpus={"google.com/tpu": 4}), []),
        (one(gpus={"huawei.com/rdma": 1, "aws.amazon.com/efa": 1, "ibm.com/disk": 1}), ["VLM040"]),
        (one(gpus={}, image="vllm/vllm-openai-cpu:v0.22.1"), []),
        (one(args=("m", "--device", "cpu"), gpus={}), []),
        (make.pod(CHAT, make.container(gpus={}), resourceClaims=[{"name": "gpu"}]), []),
        (one(gpus=SLICE, args=(*SIZED, "--tensor-parallel-size", "2")), ["VLM041"]),
        (one(gpus=SLICE, args=(*SIZED, "-dp", "2")), ["VLM041"]),
        (one(gpus={"nvidia.com/gpu": 2}, args=(*SIZED, "-tp", "2")), []),
        (one(gpus={"nvidia.com/mig-3g.40gb": 2}, args=SIZED), ["VLM042"]),
        (one(gpus=SLICE, args=SIZED), []),
        (one(gpus=SLICE), ["VLM043"]),
        (one(gpus=SLICE, args=("m", "--max-num-seqs", "8")), []),
        (one(env={"CUDA_VISIBLE_DEVICES": "MIG-1"}, image="vllm/vllm-openai:v0.20.1"), ["VLM026"]),
        (one(env={"CUDA_VISIBLE_DEVICES": "MIG-1"}, image="vllm/vllm-openai:v0.26.0"), []),
        (one(env={"CUDA_VISIBLE_DEVICES": "0"}, image="vllm/vllm-openai:v0.20.1"), []),
    ],
)
def test_gpus_and_slices(pod: Any, found: list[str]) -> None:
    assert codes(pod, written=None) == found


TWO = {"nvidia.com/gpu": 2}
OF_SLICES = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"}
OF_GPUS = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
ON_GKE = {**OF_GPUS, "cloud.google.com/gke-gpu-partition-size": "3g.40gb"}


@pytest.mark.parametrize(
    ("labels", "fields", "found"),
    [
        (OF_SLICES, {"gpus": TWO, "args": (*SIZED, "-tp", "2")}, ["VLM041"]),
        (OF_SLICES, {"gpus": {"nvidia.com/gpu.shared": 2}, "args": (*SIZED, "-tp", "2")}, ["VLM041"]),
        (OF_SLICES, {"gpus": TWO, "args": SIZED}, ["VLM042"]),
        (OF_SLICES, {}, ["VLM043"]),
        (ON_GKE, {}, ["VLM043"]),
        (OF_SLICES, {"args": SIZED}, []),
        (OF_GPUS, {"gpus": TWO, "args": (*SIZED, "-tp", "2")}, []),
        (OF_GPUS, {"gpus": TWO}, []),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-INVALID"}, {}, []),
        (OF_GPUS, {"gpus": {"nvidia.com/mig-2g.48gb-me": 2}, "args": SIZED}, ["VLM042"]),
        (OF_GPUS, {"gpus": {"nvidia.com/mig-2g.48gb-me": 1}, "args": SIZED}, []),
    ],
)
def test_slices_that_are_named_as_gpus_or_have_attributes(
    labels: dict[str, str], fields: dict[str, Any], found: list[str]
) -> None:
    assert codes(one(**fields), make.node(labels=labels), written=None) == found


def test_the_label_that_makes_a_gpu_a_slice_is_evidence() -> None:
    found = judged(one(gpus=TWO, args=SIZED), make.node(labels=OF_SLICES), written=None).one("VLM042")
    assert [(str(each.source), each.observed) for each in found.evidence][1:] == [
        ("Node gpu-1", "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb")
    ]
    named = one(gpus={"nvidia.com/mig-3g.40gb": 2}, args=SIZED)
    assert len(judged(named, written=None).one("VLM042").evidence) == 1


@pytest.mark.parametrize(
    ("pod", "node", "missing", "verdict"),
    [
        (one(), make.node(), {"nodes": Unknown(Reason.FORBIDDEN, "no")}, Verdict.NOT_PROVEN),
        (one(), make.node(), {"nodes": Unknown(Reason.TIMEOUT, "slow")}, Verdict.UNKNOWN),
        (one(), make.node(labels={"nvidia.com/gpu.product": ""}), {}, Verdict.NOT_PROVEN),
        (one(), make.node("gpu-2"), {}, Verdict.NOT_APPLICABLE),
        (one(), make.node(), {}, Verdict.NOT_APPLICABLE),
        (one(gpus={"amd.com/gpu": 1}), make.node(labels={"nvidia.com/gpu.product": ""}), {},
         Verdict.NOT_APPLICABLE),
        (one(gpus=SLICE, args=SIZED), make.node(), {"nodes": Unknown(Reason.FORBIDDEN, "no")}, Verdict.PASS),
    ],
    ids=["forbidden", "slow", "no label", "gone", "whole GPUs", "another maker's", "named as slices"],
)  # fmt: skip
def test_whether_a_gpu_is_a_slice_its_node_must_tell(
    pod: Any, node: Any, missing: dict[str, Unknown], verdict: Verdict
) -> None:
    found = judged(pod, node, written=None, missing=missing)
    for name in ("one-slice-per-engine", "batches-on-slices"):
        assert found.of(name).verdict is verdict


@pytest.mark.parametrize(
    ("fields", "severity"),
    [
        ({"env": {"VLLM_TENSOR_PARALLEL_SIZE": "2"}}, Severity.ERROR),
        ({"env": {"VLLM_ENFORCE_EAGER": "1"}}, Severity.ERROR),
        (
            {"env": {"VLLM_TENSOR_PARALLEL_SIZE": "2"}, "args": ("m", "--tensor-parallel-size", "2")},
            Severity.WARNING,
        ),
        (
            {"env": {"VLLM_TENSOR_PARALLEL_SIZE": "2"}, "args": ("m", "-tp=$(VLLM_TENSOR_PARALLEL_SIZE)")},
            None,
        ),
        ({"env": {"VLLM_MODEL": "m"}, "command": ["sh", "-c", "vllm serve $VLLM_MODEL"], "args": ()}, None),
        ({"env": {"VLLM_SWAP_SPACE": "4"}}, Severity.WARNING),
        ({"env": {"VLLM_OWN_THING": "4"}}, Severity.WARNING),
        ({"env": {"VLLM_LOGGING_LEVEL": "INFO"}}, None),
        ({"env": {"VLLM_API_KEY": "x"}}, None),
        ({"env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}}, Severity.WARNING),
        ({"env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, "image": "vllm/vllm-openai:v0.11.0"}, None),
        ({"env": {"VLLM_USE_V1": "1"}, "image": "mirror/vllm-openai:latest"}, None),
        ({"env": {"HF_TOKEN": "x"}}, None),
    ],
)
def test_variables_that_vllm_ignores(fields: dict[str, Any], severity: Severity | None) -> None:
    found = judged(one(**fields), written=None)
    weights = [each.weight for each in found.findings if each.code.id == "VLM050"]
    assert weights == ([severity] if severity else [])
    assert all(
        "x" not in evidence.observed
        for each in found.findings
        if each.code.id == "VLM050"
        for evidence in each.evidence
        if "KEY" in evidence.observed
    )


def test_a_script_nobody_can_read_may_use_a_variable() -> None:
    pod = one(env={"VLLM_OWN_THING": "4"}, command=["/opt/start.sh"], args=())
    assert judged(pod, written=None).of("variables-in-use").verdict == Verdict.NOT_PROVEN


@pytest.mark.parametrize(
    ("fields", "name", "verdict"),
    [
        ({"image": "quay.io/ascend/vllm-ascend:v0.11.0rc1"}, "VLLM_ASCEND_ENABLE_X", Verdict.NOT_PROVEN),
        ({"image": "quay.io/modh/vllm-gaudi:1"}, "VLLM_PROMPT_SEQ_BUCKET_MAX", Verdict.NOT_PROVEN),
        ({"image": "ghcr.io/llm-d/llm-d-hpu:v0.4.0"}, "VLLM_SKIP_WARMUP", Verdict.NOT_PROVEN),
        ({"image": "quay.io/ibm-aiu/vllm-spyre:1"}, "VLLM_SPYRE_WARMUP_PROMPT_LENS", Verdict.NOT_PROVEN),
        ({"image": "public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:0.9.1"}, "VLLM_NEURON_FRAMEWORK",
         Verdict.NOT_PROVEN),
        ({"image": "corp/llm:3", "gpus": {"habana.ai/gaudi": 1}}, "VLLM_SKIP_WARMUP", Verdict.NOT_PROVEN),
        ({"image": "quay.io/ascend/vllm-ascend:v0.11.0rc1"}, "VLLM_MAX_MODEL_LEN", Verdict.FAIL),
        ({"image": "quay.io/ascend/vllm-ascend:v0.11.0rc1"}, "VLLM_LOGGING_LEVEL", Verdict.PASS),
        ({"image": "corp/llm:3"}, "VLLM_SKIP_WARMUP", Verdict.FAIL),
        ({"image": "quay.io/modh/vllm:1"}, "VLLM_SKIP_WARMUP", Verdict.FAIL),
        ({"image": "corp/output-llm:3"}, "VLLM_SKIP_WARMUP", Verdict.FAIL),
    ],
)  # fmt: skip
def test_a_fork_or_plugin_may_read_what_vllm_never_knew(
    fields: dict[str, Any], name: str, verdict: Verdict
) -> None:
    pod = one(command=["vllm", "serve"], env={name: "1"}, **fields)
    judgement = judged(pod, written=None).of("variables-in-use")
    assert judgement.verdict is verdict
    assert (name in str(judgement.reason)) is (verdict is Verdict.NOT_PROVEN)


def test_beside_a_plugins_variables_what_is_believed_of_vllm_is_told() -> None:
    env = {"VLLM_ASCEND_ENABLE_X": "1", "VLLM_ENFORCE_EAGER": "1"}
    found = judged(
        one(image="quay.io/ascend/vllm-ascend:1", command=["vllm", "serve"], env=env), written=None
    )
    assert "VLLM_ENFORCE_EAGER" in found.one("VLM050").message


@pytest.mark.parametrize(
    ("pod", "service", "found"),
    [
        (make.pod(), make.service(), True),
        (make.pod(), make.service("vllm-chat"), False),
        (make.pod(), make.service(namespace="other"), False),
        (make.pod(), make.service(address="None"), False),
        (make.pod(enableServiceLinks=False), make.service(), False),
        (one(env={"VLLM_PORT": "5000"}), make.service(), False),
        (one(image="vllm/vllm-openai:v0.4.3"), make.service(), False),
    ],
)
def test_a_service_named_vllm(pod: Any, service: Any, found: bool) -> None:
    assert ("VLM051" in codes(pod, service, written=None)) is found


def full(free: int = 0) -> Any:
    node = make.node()
    node["status"]["allocatable"] = {"nvidia.com/gpu": str(1 + free)}
    return node


@pytest.mark.parametrize(
    ("deployment", "node", "more", "found"),
    [
        (make.deployment(), full(0), (), True),
        (make.deployment(), full(1), (), False),
        (make.deployment(strategy={"type": "Recreate"}), full(0), (), False),
        (
            make.deployment(
                strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
            ),
            full(0),
            (),
            False,
        ),
        (
            make.deployment(strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}),
            full(0),
            (),
            False,
        ),
        (make.deployment(strategy={}), full(0), (), True),
        (make.deployment(replicas=4), full(0), (), False),
        (make.deployment(paused=True), full(0), (), False),
    ],
)
def test_a_rollout_that_would_wait_for_ever(
    deployment: Any, node: Any, more: tuple[Any, ...], found: bool
) -> None:
    assert ("VLM060" in codes(make.pod(), deployment, node, *more)) is found


TAINT = {"key": "team", "value": "b", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "status", "tolerations", "found"),
    [
        ({}, {}, [], False),
        ({"taints": [TAINT]}, {}, [], True),
        ({"taints": [TAINT]}, {}, [{"key": "team", "operator": "Exists"}], False),
        ({"taints": [TAINT]}, {}, [{"key": "team", "value": "c"}], True),
        ({"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, {}, [], False),
        ({"unschedulable": True}, {}, [], True),
        ({}, {"conditions": [{"type": "Ready", "status": "Unknown"}]}, [], True),
        ({}, {"conditions": [{"type": "Ready", "status": "True"}]}, [], False),
    ],
)
def test_a_free_gpu_counts_where_the_new_pod_may_go(
    spec: Any, status: Any, tolerations: Any, found: bool
) -> None:
    other = make.node("gpu-2")
    other["spec"] |= spec
    other["status"] |= status
    pod = make.pod(tolerations=tolerations)
    assert ("VLM060" in codes(pod, make.deployment(), full(0), other)) is found


def test_a_pod_worth_less_makes_room() -> None:
    other = make.pod(
        "batch", make.container(["x"], name="b", image="busybox", command=["sleep"]), labels={}, node="gpu-2"
    )
    second = make.node("gpu-2")
    second["status"]["allocatable"] = {"nvidia.com/gpu": "1"}
    important = make.pod(priority=1000)
    assert "VLM060" not in codes(important, make.deployment(), full(0), other, second)
    assert "VLM060" in codes(make.pod(), make.deployment(), full(0), other, second)


def waiting(message: str) -> Any:
    pod = make.pod("chat-66666666-bbbbb", phase="Pending", labels={"pod-template-hash": "66666666"}, node="")
    pod["metadata"]["ownerReferences"][0]["name"] = "chat-66666666"
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    ]
    return pod


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", True),
        ("0/1 nodes are available: 1 had untolerated taint", False),
    ],
)
def test_a_rollout_that_waits_for_the_old_pod(message: str, found: bool) -> None:
    assert ("VLM061" in codes(make.pod(), waiting(message), make.deployment(), full(0))) is found


@pytest.mark.parametrize(
    ("image", "found"), [("v0.9.2", True), ("v0.10.2", True), ("v0.11.0", False), ("v0.22.1", False)]
)
def test_old_engines(image: str, found: bool) -> None:
    result = judged(one(image=f"vllm/vllm-openai:{image}"), written=None)
    assert ("VLM070" in result.codes) is found


def test_an_image_without_a_version_is_not_proven() -> None:
    result = judged(one(image="mirror.example/vllm-openai:latest"), written=None)
    assert result.of("current-releases").verdict == Verdict.NOT_PROVEN


UNTAGGED = "0.1.dev15312+g690e127b1.d20260816"


@pytest.mark.parametrize(
    ("version", "image", "found"),
    [
        (UNTAGGED, "mirror.example/vllm-openai:latest", ["VLM051"]),
        ("0.1.2", "mirror.example/vllm-openai:latest", ["VLM010", "VLM050", "VLM070"]),
        (UNTAGGED, "vllm/vllm-openai:v0.22.1", ["VLM051"]),
        (UNTAGGED, "vllm/vllm-openai:v0.9.2", ["VLM010", "VLM051", "VLM070"]),
    ],
    ids=["nothing tells", "a release", "the tag tells", "the tag tells of an old one"],
)
def test_a_build_without_tags_is_no_old_release(version: str, image: str, found: list[str]) -> None:
    text = make.graphs_log(version, utilization=0.95, took=1.0)
    pod = one(image=image, env={"VLLM_LOGGING_LEVEL": "INFO"})
    result = judged(pod, make.service(), written={(CHAT, "vllm"): text})
    assert [code for code in result.codes if code != "VLM003"] == found


def test_a_version_that_names_no_release_is_shown_and_judges_nothing() -> None:
    text = make.graphs_log(UNTAGGED)
    result = judged(one(image="mirror.example/vllm-openai:latest"), written={(CHAT, "vllm"): text})
    assert result.engine["version"] == UNTAGGED
    assert result.of("current-releases").verdict is Verdict.NOT_PROVEN


@pytest.mark.parametrize("resource", ["pods", "nodes", "services", "deployments.apps"])
def test_what_could_not_be_read_is_not_green(resource: str) -> None:
    gap = Unknown(Reason.FORBIDDEN, "no", resource)
    found = judged(make.pod(), make.deployment(), missing={resource: gap})
    verdicts = {each.verdict for each in found.judgements}
    assert verdicts & {Verdict.UNKNOWN, Verdict.NOT_PROVEN}
    assert Verdict.FAIL not in verdicts
