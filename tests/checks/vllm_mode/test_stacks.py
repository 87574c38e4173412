"""Engines as the stacks around vLLM start them: read as far as their notes go, else listed with a reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.builders import vllm as make
from tests.checks.judging import judged_engines as judged

RAY = {"ray.io/cluster": "llm"}
LWS = {"leaderworkerset.sigs.k8s.io/name": "vllm", "leaderworkerset.sigs.k8s.io/group-index": "0"}
LWS_INDEX, LWS_LEADER = "leaderworkerset.sigs.k8s.io/worker-index", "leaderworkerset.sigs.k8s.io/leader-name"
KSERVE = {"serving.kserve.io/inferenceservice": "chat", "component": "predictor"}
LLM = {
    "app.kubernetes.io/part-of": "llminferenceservice",
    "app.kubernetes.io/name": "qwen",
    "kserve.io/component": "workload",
}
COMPONENT = "app.kubernetes.io/component"
EVAL = (
    'eval "exec vllm serve /mnt/models --served-model-name \\"${KSERVE_MODEL}\\" --port 8000 '
    '${VLLM_ADDITIONAL_ARGS} $@"'
)
DYNAMO, RUNPOD = (
    "nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.6.0",
    "runpod/worker-v1-vllm:v2.7.0stable-cuda12.1.0",
)
NIM, SAGEMAKER = (
    "nvcr.io/nim/meta/llama-3.1-8b-instruct:2.0",
    "public.ecr.aws/dlc/vllm:0.11-gpu-py312-sagemaker",
)
RAY_IMAGE, RAY_START = "rayproject/ray-llm:2.46.0-py311-cu124", "ulimit -n 65536; ray start --block"
MULTI_NODE = "bash /vllm-workspace/examples/online_serving/multi-node-serving.sh"


@dataclass(frozen=True)
class Stack:
    """A container as a stack makes it, and what is said of it: its mode, or why that is not known."""

    image: str
    says: str
    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    gpus: int = 1
    workload: str = "Pod engine"

    def pod(self) -> dict[str, Any]:
        more = {"command": list(self.command)} if self.command else {}
        gpus = {"nvidia.com/gpu": self.gpus} if self.gpus else {}
        container = make.container(self.args, name="main", image=self.image, env=self.env, gpus=gpus, **more)
        made = make.pod("engine", container, labels=self.labels or {"app": "x"}, annotations=self.annotations)
        del made["metadata"]["ownerReferences"]
        return made


LISTED = {
    "KServe, Hugging Face runtime": Stack(
        "kserve/huggingfaceserver:v0.15.2-gpu",
        "eager",
        args=("--model_name=m", "--backend=vllm", "--enforce_eager"),
        labels=KSERVE,
        workload="InferenceService chat",
    ),
    "KServe, Hugging Face runtime that chooses": Stack(
        "kserve/huggingfaceserver:v0.15.2-gpu",
        "its backend is chosen at run time",
        args=("--model_name=m", "--backend=auto"),
        labels=KSERVE,
        workload="InferenceService chat",
    ),
    "KServe, RHOAI runtime": Stack(
        "quay.io/modh/vllm@sha256:aa",
        "graphs",
        args=("--port=8080", "--model=/mnt/models"),
        command=("python", "-m", "vllm.entrypoints.openai.api_server"),
        labels=KSERVE,
        annotations={"opendatahub.io/kserve-runtime": "vllm"},
        workload="InferenceService chat",
    ),
    "LLMInferenceService, by a variable": Stack(
        "ghcr.io/llm-d/llm-d-cuda:v0.4.0",
        "eager",
        args=(EVAL,),
        command=("/bin/bash", "-c"),
        labels={**LLM, COMPONENT: "llminferenceservice-workload"},
        env={"VLLM_ADDITIONAL_ARGS": "--enforce-eager"},
        workload="LLMInferenceService qwen",
    ),
    "LLMInferenceService, by its template's arguments": Stack(
        "ghcr.io/llm-d/llm-d-cuda:v0.4.0",
        "eager",
        args=(EVAL, "--", "--enforce-eager"),
        command=("/bin/bash", "-c"),
        labels={**LLM, COMPONENT: "llminferenceservice-workload-prefill"},
        workload="LLMInferenceService qwen",
    ),
    "LeaderWorkerSet": Stack(
        "vllm/vllm-openai:v0.11.0",
        "graphs (FULL_AND_PIECEWISE)",
        args=(f"{MULTI_NODE} leader; python3 -m vllm.entrypoints.openai.api_server --model m -tp 8",),
        command=("sh", "-c"),
        labels={**LWS, LWS_INDEX: "0"},
        workload="LeaderWorkerSet vllm",
    ),
    "LeaderWorkerSet's worker": Stack(
        "vllm/vllm-openai:v0.11.0",
        "a worker: the log of vllm-0 tells",
        args=(f"{MULTI_NODE} worker",),
        command=("sh", "-c"),
        labels={**LWS, LWS_INDEX: "1"},
        annotations={LWS_LEADER: "vllm-0"},
        workload="LeaderWorkerSet vllm",
    ),
    "llm-d": Stack(
        "ghcr.io/llm-d/llm-d:v0.3.0",
        "graphs",
        args=("m", "--port", "8200"),
        command=("vllm", "serve"),
        labels={"llm-d.ai/inference-serving": "true", "llm-d.ai/role": "decode"},
    ),
    "production-stack, whose image has versions of its own": Stack(
        "lmcache/vllm-openai:v0.3.9", "eager", command=("/opt/venv/bin/vllm", "serve", "m", "--enforce-eager")
    ),
    "NIM": Stack(
        "nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8", "a NIM chooses its engine and mode at run time"
    ),
    "NIM, by its variable": Stack(NIM, "eager", env={"NIM_DISABLE_CUDA_GRAPH": "1"}),
    "NIM, by arguments passed on": Stack(NIM, "eager", env={"NIM_PASSTHROUGH_ARGS": "--enforce-eager"}),
    "Dynamo": Stack(
        DYNAMO, "eager", args=("--model", "m", "--enforce-eager"), command=("python3", "-m", "dynamo.vllm")
    ),
    "Dynamo in a shell": Stack(
        DYNAMO, "graphs", args=("python3 -m dynamo.vllm --model m 2>&1 | tee /tmp/log",), command=("sh", "-c")
    ),
    "Ray Serve's head": Stack(
        RAY_IMAGE,
        "Ray Serve sets the engine up in its own configuration (engine_kwargs)",
        args=(RAY_START,),
        command=("/bin/bash", "-lc"),
        labels={**RAY, "ray.io/node-type": "head"},
        gpus=0,
        workload="RayCluster llm",
    ),
    "Ray Serve's worker": Stack(
        RAY_IMAGE,
        "a worker: the log of the head of RayCluster llm tells",
        args=(RAY_START,),
        command=("/bin/bash", "-lc"),
        labels={**RAY, "ray.io/node-type": "worker"},
        workload="RayCluster llm",
    ),
    "SageMaker": Stack(SAGEMAKER, "eager", env={"SM_VLLM_MODEL": "m", "SM_VLLM_ENFORCE_EAGER": "true"}),
    "SageMaker's default": Stack(SAGEMAKER, "graphs", env={"SM_VLLM_MODEL": "m"}),
    "DJL Serving": Stack(
        "deepjavalibrary/djl-serving:0.33.0-lmi",
        "DJL Serving chooses its engine and mode at run time",
        env={"OPTION_ROLLING_BATCH": "vllm"},
    ),
    "RunPod": Stack(RUNPOD, "eager", env={"ENFORCE_EAGER": "true"}),
    "RunPod, nothing said": Stack(RUNPOD, "its command does not show how it starts vLLM"),
}


def _mode(mode: dict[str, Any]) -> str:
    kind = "graphs" if mode["graphs"] else "eager"
    return f"{kind} ({mode['variant']})" if "variant" in mode else kind


@pytest.mark.parametrize("name", LISTED)
def test_every_engine_of_a_stack_is_listed(name: str) -> None:
    stack = LISTED[name]
    found = judged(stack.pod(), written={})
    (engine,) = found.engines("engine")
    assert stack.says in (engine.get("modeUnknown") or _mode(engine["mode"]))
    assert engine["workload"] == stack.workload
    assert not found.failing, "nothing is wrong with any of them"


@pytest.mark.parametrize(
    "stack",
    [
        Stack("lmcache/lmstack-router:v0.1", "", args=("--port", "8000"), gpus=0),
        Stack("lmcache/vllm-openai:v0.3.9", "", command=("/opt/venv/bin/lmcache_server", "0.0.0.0"), gpus=0),
        Stack("ghcr.io/llm-d/llm-d-inference-sim:v0.5.0", "", labels={"llm-d.ai/inference-serving": "true"}),
        Stack(
            "ghcr.io/llm-d/llm-d-inference-scheduler:v0.4.0",
            "",
            labels={**LLM, COMPONENT: "llminferenceservice-router-scheduler"},
            gpus=0,
        ),
        Stack(DYNAMO, "", args=("-m", "dynamo.frontend"), command=("python3",), gpus=0),
        Stack("kserve/huggingfaceserver:v0.15.2", "", args=("--backend=huggingface",), labels=KSERVE),
    ],
    ids=lambda stack: stack.image,
)
def test_what_only_stands_beside_engines_is_none(stack: Stack) -> None:
    assert judged(stack.pod(), written={}).verdict.value == "not-applicable"
