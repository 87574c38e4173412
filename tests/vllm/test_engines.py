"""Which containers are engines: the stacks people run, as they write them, and what only looks like one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuctl.vllm import version as versions
from gpuctl.vllm.engines import engines, leader_of, workload
from gpuctl.vllm.objects import EnginePod

GPU = {"limits": {"nvidia.com/gpu": "1"}}


def pod(
    *containers: dict[str, Any],
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **more: Any,
) -> EnginePod:
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "n",
            "labels": labels or {},
            "annotations": annotations or {},
            **more,
        },
        "spec": {"containers": list(containers)},
        "status": {"phase": "Running"},
    }
    return msgspec.convert(tree, EnginePod)


def c(name: str, image: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **more}


PROXY = c("istio-proxy", "docker.io/istio/proxyv2:1.24")
QUEUE = c("queue-proxy", "gcr.io/knative-releases/knative.dev/serving/cmd/queue:v1")
LLM = {"app.kubernetes.io/part-of": "llminferenceservice", "app.kubernetes.io/name": "qwen"}

STACKS: dict[str, tuple[EnginePod, list[tuple[str, str]]]] = {
    "a Deployment": (
        pod(c("server", "vllm/vllm-openai:v0.11.0", args=["--model", "m"], resources=GPU), PROXY),
        [("server", "vLLM")],
    ),
    "a mirror": (
        pod(c("x", "registry.corp:5000/mirror/vllm-openai:v0.9.1@sha256:00", resources=GPU)),
        [("x", "vLLM")],
    ),
    "KServe InferenceService, Hugging Face runtime": (
        pod(
            c(
                "kserve-container",
                "kserve/huggingfaceserver:v0.15.2-gpu",
                args=["--model_name=m", "--backend=auto"],
                resources=GPU,
            ),
            QUEUE,
            c("agent", "kserve/agent:v0.15.2"),
            labels={"serving.kserve.io/inferenceservice": "chat", "component": "predictor"},
        ),
        [("kserve-container", "KServe's Hugging Face runtime")],
    ),
    "KServe InferenceService, RHOAI runtime": (
        pod(
            c(
                "kserve-container",
                "quay.io/modh/vllm@sha256:aa",
                command=["python", "-m", "vllm.entrypoints.openai.api_server"],
                resources=GPU,
            ),
            labels={"serving.kserve.io/inferenceservice": "chat"},
            annotations={"opendatahub.io/kserve-runtime": "vllm"},
        ),
        [("kserve-container", "vLLM of Open Data Hub")],
    ),
    "KServe LLMInferenceService": (
        pod(
            c(
                "main",
                "ghcr.io/llm-d/llm-d:v0.3.0",
                command=["/bin/bash", "-c"],
                args=['eval "exec vllm serve /mnt/models ${VLLM_ADDITIONAL_ARGS}"'],
                resources=GPU,
            ),
            c("llm-d-routing-sidecar", "ghcr.io/llm-d/llm-d-routing-sidecar:v0.3.0"),
            labels={**LLM, "app.kubernetes.io/component": "llminferenceservice-workload"},
        ),
        [("main", "llm-d")],
    ),
    "LLMInferenceService's tokenizer": (
        pod(
            c("main", "vllm/vllm-openai:v0.11.0", args=["serve", "m"]),
            labels={**LLM, "app.kubernetes.io/component": "llminferenceservice-tokenizer"},
        ),
        [],
    ),
    "a LeaderWorkerSet's leader": (
        pod(
            c(
                "vllm-leader",
                "vllm/vllm-openai:v0.10.0",
                command=["sh", "-c", "bash multi-node-serving.sh leader; vllm serve m -tp 8"],
                resources=GPU,
            ),
            labels={
                "leaderworkerset.sigs.k8s.io/name": "vllm",
                "leaderworkerset.sigs.k8s.io/worker-index": "0",
            },
        ),
        [("vllm-leader", "vLLM")],
    ),
    "a LeaderWorkerSet's worker": (
        pod(
            c(
                "vllm-worker",
                "vllm/vllm-openai:v0.10.0",
                command=["sh", "-c", "bash multi-node-serving.sh worker"],
                resources=GPU,
            ),
            labels={
                "leaderworkerset.sigs.k8s.io/name": "vllm",
                "leaderworkerset.sigs.k8s.io/worker-index": "1",
            },
        ),
        [("vllm-worker", "vLLM")],
    ),
    "llm-d-modelservice with a DRA claim": (
        pod(
            c(
                "vllm",
                "ghcr.io/llm-d/llm-d-cuda:v0.4.0",
                args=["--model", "m"],
                resources={"claims": [{"name": "gpu"}]},
            ),
            labels={"llm-d.ai/inference-serving": "true", "llm-d.ai/role": "decode"},
        ),
        [("vllm", "llm-d")],
    ),
    "production-stack": (
        pod(
            c(
                "vllm",
                "lmcache/vllm-openai:v0.3.0",
                command=["/opt/venv/bin/vllm", "serve", "m"],
                resources=GPU,
            )
        ),
        [("vllm", "vLLM")],
    ),
    "production-stack's router": (
        pod(c("router", "lmcache/lmstack-router:latest", args=["--port", "8000"])),
        [],
    ),
    "a simulator": (
        pod(
            c("vllm", "ghcr.io/llm-d/llm-d-inference-sim:v0.5.0", args=["--model", "m"]),
            labels={"llm-d.ai/inference-serving": "true"},
        ),
        [],
    ),
    "Red Hat AI Inference Server": (
        pod(c("s", "registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2", args=["--model", "m"], resources=GPU)),
        [("s", "Red Hat AI Inference Server")],
    ),
    "NIM": (pod(c("nim", "nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8", resources=GPU)), [("nim", "NIM")]),
    "Dynamo": (
        pod(
            c(
                "main",
                "nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.6.0",
                command=["python3", "-m", "dynamo.vllm"],
                args=["--model", "m"],
                resources=GPU,
            )
        ),
        [("main", "Dynamo")],
    ),
    "Ray Serve": (
        pod(
            c("ray-worker", "rayproject/ray-llm:2.46.0-py311-cu124", resources=GPU),
            labels={"ray.io/cluster": "c", "ray.io/node-type": "worker"},
        ),
        [("ray-worker", "Ray Serve")],
    ),
    "RunPod's worker": (pod(c("w", "runpod/worker-v1-vllm:v2.7.0", resources=GPU)), [("w", "RunPod worker")]),
    "an own image by its command": (
        pod(c("api", "corp/llm:3", command=["bash", "-c", "exec vllm serve /m"], resources=GPU)),
        [("api", "an image unknown here")],
    ),
    "an own image by a label": (
        pod(PROXY, c("api", "corp/llm:3", resources=GPU), c("x", "corp/x"), labels={"engine": "vllm"}),
        [("api", "an image unknown here")],
    ),
    "two engines": (
        pod(
            c("a", "vllm/vllm-openai:v0.11.0", resources=GPU),
            c("b", "vllm/vllm-openai:v0.11.0", resources=GPU),
        ),
        [("a", "vLLM"), ("b", "vLLM")],
    ),
    "the image used for a benchmark": (
        pod(c("bench", "vllm/vllm-openai:v0.11.0", command=["sleep", "inf"])),
        [],
    ),
    "Hugging Face runtime without vLLM": (
        pod(c("kserve-container", "kserve/huggingfaceserver:v0.15.2", args=["--backend", "huggingface"])),
        [],
    ),
    "a web server": (pod(c("web", "nginx:1.27")), []),
}


@pytest.mark.parametrize("name", STACKS)
def test_the_engines_of_a_pod(name: str) -> None:
    made, wanted = STACKS[name]
    assert [(each.ref.container, each.stack.name) for each in engines(made)] == wanted


def test_pods_that_are_over_have_no_engines() -> None:
    done = pod(c("a", "vllm/vllm-openai:v0.11.0"))
    assert (
        list(
            engines(
                msgspec.structs.replace(done, status=msgspec.structs.replace(done.status, phase="Succeeded"))
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.10.1.1", "0.10.1.1"),
        ("vllm/vllm-openai:v0.11.0-x86_64", "0.11.0-x86_64"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai:nightly-2026", None),
        ("reg:5000/vllm-openai@sha256:00", None),
        ("ghcr.io/llm-d/llm-d:v0.3.0", None),
        ("lmcache/vllm-openai:v0.3.9", None),
        ("aibrix/vllm-openai:v0.10.2", None),
    ],
)
def test_versions_by_the_tag(image: str, version: str | None) -> None:
    (found,) = engines(pod(c("a", image, resources=GPU)))
    assert (str(found.image_version) if found.image_version else None) == version


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0.1.dev15312+g690e127b1", None),
        ("v0.1.dev15312+g690e127b1.d20260816", None),
        ("0.1.dev1", None),
        ("0.0.0", None),
        ("0.0.0+unknown", None),
        ("0.1.2", (0, 1, 2)),
        ("0.10.1.dev15312+g690e127b1", (0, 10, 1)),
        ("v0.11.0rc2.dev399+ge94cfd51d", (0, 11, 0)),
    ],
)
def test_a_build_without_tags_names_no_release(text: str, key: tuple[int, int, int] | None) -> None:
    version = versions.parse(text)
    assert versions.is_written(text)
    assert (version.key if version else None) == key


@pytest.mark.parametrize(
    ("labels", "owner", "named"),
    [
        ({"pod-template-hash": "7c9d5b8f4"}, ("ReplicaSet", "chat-7c9d5b8f4"), "Deployment chat"),
        ({}, ("StatefulSet", "chat"), "StatefulSet chat"),
        ({"serving.kserve.io/inferenceservice": "qa"}, ("ReplicaSet", "x-1"), "InferenceService qa"),
        (LLM, ("ReplicaSet", "x-1"), "LLMInferenceService qwen"),
        ({"leaderworkerset.sigs.k8s.io/name": "big"}, ("StatefulSet", "big"), "LeaderWorkerSet big"),
        ({}, None, "Pod p"),
    ],
)
def test_what_a_pod_belongs_to(labels: dict[str, str], owner: tuple[str, str] | None, named: str) -> None:
    owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    assert workload(pod(c("a"), labels=labels, ownerReferences=owners)) == named


def test_workers_follow_a_leader() -> None:
    label = "leaderworkerset.sigs.k8s.io/worker-index"
    assert leader_of(pod(c("a"), labels={label: "0"})) == ""
    assert (
        leader_of(
            pod(c("a"), labels={label: "1"}, annotations={"leaderworkerset.sigs.k8s.io/leader-name": "big-0"})
        )
        == "big-0"
    )
