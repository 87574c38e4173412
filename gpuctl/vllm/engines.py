"""Which containers serve a model with vLLM, and which only look like it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpuctl.facts.kinds import Ref
from gpuctl.vllm import launch as launches
from gpuctl.vllm import version as versions
from gpuctl.vllm.objects import EngineContainer, EnginePod
from gpuctl.vllm.version import Version


@dataclass(frozen=True, slots=True)
class EngineRef:
    """One engine: a container of a pod."""

    pod: Ref
    container: str

    def __str__(self) -> str:
        return f"{self.pod} container {self.container}"


@dataclass(frozen=True, slots=True)
class Stack:
    """A family of images. `entrypoint`: it starts vLLM by itself, so the arguments are vLLM's.
    `tagged`: its tags are vLLM's versions. `why_not`: why its mode can't be told from the pod."""

    name: str
    entrypoint: bool = True
    tagged: bool = False
    platform: str = ""
    why_not: str = ""


_FORK: Final = Stack("a fork of vLLM", entrypoint=False)
# By the last parts of an image's name: registries are mirrored under any address. The first match counts.
_IMAGES: Final[tuple[tuple[re.Pattern[str], Stack], ...]] = tuple(
    (re.compile(rf"(?:^|/){pattern}(?:[:@]|$)"), stack)
    for pattern, stack in (
        (r"vllm-cpu-release-repo", Stack("vLLM on CPU", tagged=True, platform="a CPU")),
        (r"vllm-openai-cpu", Stack("vLLM on CPU", tagged=True, platform="a CPU")),
        (r"(?:lmcache|aibrix)/vllm-openai", Stack("vLLM")),  # whose tags are versions of their own
        (r"vllm-openai(?:-rocm|-xpu|-nonroot)?", Stack("vLLM", tagged=True)),
        (r"rocm/vllm(?:-dev)?", Stack("vLLM on ROCm", entrypoint=False)),
        (r"llm-d(?:-cuda|-xpu|-rocm|-aws|-gke|-hpu)?", Stack("llm-d")),
        (
            r"(?:rhaiis|rhaii)/vllm-(?:cuda|rocm|spyre|neuron|gaudi|tpu)[\w-]*",
            Stack("Red Hat AI Inference Server"),
        ),
        (r"(?:modh|opendatahub)/vllm[\w-]*", Stack("vLLM of Open Data Hub")),
        (r"huggingfaceserver", Stack("KServe's Hugging Face runtime")),
        (r"nvidia/vllm", Stack("vLLM of NVIDIA", entrypoint=False)),
        (
            r"nvcr\.io/nim/[\w./-]+",
            Stack("NIM", entrypoint=False, why_not="a NIM chooses its engine and mode at run time"),
        ),
        (r"(?:ai-dynamo|dynamo)[\w/-]*vllm-runtime", Stack("Dynamo", entrypoint=False)),
        (r"vllm-runtime", Stack("Dynamo", entrypoint=False)),
        (
            r"ray-(?:llm|ml-llm)",
            Stack(
                "Ray Serve",
                entrypoint=False,
                why_not="Ray Serve sets the engine up in its own configuration (engine_kwargs)",
            ),
        ),
        (
            r"djl-(?:serving|inference)",
            Stack(
                "DJL Serving", entrypoint=False, why_not="DJL Serving chooses its engine and mode at run time"
            ),
        ),
        (
            r"(?:sagemaker-vllm|vllm-sagemaker|vllm)(?:-sagemaker)?",
            Stack("vLLM", entrypoint=True),
        ),
        (r"(?:runpod/)?worker-(?:v1-)?vllm", Stack("RunPod worker", entrypoint=False)),
        (r"vllm-(?:ascend|gaudi|tpu|neuron|spyre|fork|omni)[\w-]*", _FORK),
    )
)
_NOT_ENGINES: Final = re.compile(
    r"(?:^|/)(?:llm-d-inference-sim|llm-d-(?:routing-sidecar|router-[\w-]+|inference-scheduler|kv-cache[\w-]*)"
    r"|[\w-]*(?:epp|endpoint-picker)|[\w-]*vllm-router|lmstack-router|router|[\w-]*lmcache-server|storage-initializer"
    r"|[\w-]*tokenizer[\w-]*|agent|istio-proxy|proxyv2|queue|queue-proxy)(?:[:@]|$)"
)
_PREFERRED: Final = ("kserve-container", "main", "vllm")
# Accelerators that vLLM runs on by a plugin or a fork, which read variables of their own.
_PLUGGED: Final = (
    r"aws\.amazon\.com/neuron|google\.com/tpu|habana\.ai/|huawei\.com/(?:[Aa]scend|npu)"
    r"|ibm\.com/(?:aiu|spyre)"
)
_BY_PLUGIN: Final = re.compile(_PLUGGED)
_ANY_GPU: Final = re.compile(
    rf"nvidia\.com/(?:gpu|mig-|gpumem|vgpu)|amd\.com/gpu|gpu\.intel\.com/|volcano\.sh/vgpu|{_PLUGGED}"
)
_PLUGIN_IMAGE: Final = re.compile(r"(?<![a-z])(?:ascend|gaudi|habana\w*|hpu|neuronx?|spyre|tpu)(?![a-z])")
_VLLM_LABELS: Final = {"engine": "vllm", "llm-d.ai/inference-serving": "true"}
_RUNTIME: Final = "opendatahub.io/kserve-runtime"
_LLM_WORKLOAD: Final = re.compile(r"llminferenceservice-workload(?:-[\w-]+)?")
_FINISHED: Final = frozenset({"Succeeded"})


@dataclass(frozen=True, slots=True)
class Found:
    """A container that serves a model, and by what it was recognised."""

    ref: EngineRef
    pod: EnginePod
    container: EngineContainer
    stack: Stack
    by: str

    @property
    def image_version(self) -> Version | None:
        """vLLM's version by the image's tag, where the tags are vLLM's own."""
        return versions.of_image(self.container.image) if self.stack.tagged else None

    @property
    def adds_variables(self) -> bool:
        """Whether it is a fork of vLLM, or has a plugin for its accelerator, which read more variables."""
        resources = (*self.container.resources.limits, *self.container.resources.requests)
        return (
            self.stack == _FORK
            or _PLUGIN_IMAGE.search(_name(self.container.image).lower()) is not None
            or any(map(_BY_PLUGIN.match, resources))
        )


def engines(pod: EnginePod) -> Iterator[Found]:
    """The engines of a pod: every container that starts vLLM, or the likeliest one of a pod labelled so."""
    if pod.status.phase in _FINISHED or pod.metadata.deletion_timestamp is not None:
        return
    candidates = [each for each in pod.spec.containers if not _NOT_ENGINES.search(_name(each.image))]
    found = [each for each in (_recognised(pod, container) for container in candidates) if each]
    if not found and candidates and _labelled(pod):
        likely = _likeliest(candidates)
        found = [_found(pod, likely, Stack("an image unknown here", entrypoint=False), "the pod's labels")]
    yield from found


class CandidatePod(EnginePod, frozen=True):
    """A pod that serves a model, or holds a GPU that one may wait for: of a large cluster those are few."""

    @property
    def relevant(self) -> bool:
        """Whether a judgement of engines can rest on it."""
        return any(map(uses_gpu, self.spec.containers)) or any(True for _ in engines(self))


def _name(image: str) -> str:
    return image.partition("@")[0]


def _recognised(pod: EnginePod, container: EngineContainer) -> Found | None:
    if _is_tokenizer(pod):
        return None
    starts = _starts_vllm(container)
    stack = next((stack for pattern, stack in _IMAGES if pattern.search(_name(container.image))), None)
    if stack is None:
        return (
            _found(pod, container, Stack("an image unknown here", entrypoint=False), "its command")
            if starts
            else None
        )
    if not starts and _does_something_else(container, stack):
        return None
    if "huggingfaceserver" in container.image and not _wants_vllm(container):
        stack = replace(stack, why_not="its backend is chosen at run time (--backend=auto)")
    return _found(pod, container, stack, "its command" if starts else "its image")


def _found(pod: EnginePod, container: EngineContainer, stack: Stack, by: str) -> Found:
    return Found(EngineRef(pod.ref, container.name), pod, container, stack, by)


def _is_tokenizer(pod: EnginePod) -> bool:
    return "tokenizer" in pod.metadata.labels.get("app.kubernetes.io/component", "").lower()


def _starts_vllm(container: EngineContainer) -> bool:
    words = (*(container.command or ()), *(container.args or ()))
    text = " ".join(words)
    if launches.started_with(words):
        return "huggingfaceserver" not in text or "--backend=huggingface" not in text.replace(" ", "=")
    return bool(re.search(r"\bvllm\s+serve\b|vllm\.entrypoints\.|-m\s+dynamo\.vllm|\$\{?VLLM_\w*CMD", text))


def _wants_vllm(container: EngineContainer) -> bool:
    """Whether KServe's runtime is told to use vLLM and nothing else."""
    words = (*(container.command or ()), *(container.args or ()))
    return "--backend=vllm" in " ".join(words).replace("--backend vllm", "--backend=vllm")


def _does_something_else(container: EngineContainer, stack: Stack) -> bool:
    """Whether an image that can serve is used for other work, such as copying files or sleeping."""
    words = (*(container.command or ()), *(container.args or ()))
    if "huggingfaceserver" in container.image:
        return "--backend=huggingface" in " ".join(words).replace(" ", "=")
    if not container.command:
        return False
    text = " ".join(container.command + (container.args or ()))
    return not (stack.why_not or _is_opaque(text) or uses_gpu(container))


def _is_opaque(text: str) -> bool:
    """Whether a command may hide a start of vLLM: a script or a program of its own."""
    return bool(re.search(r"\.(?:sh|py)\b|/(?:app|scripts?|entrypoint)\b", text))


def uses_gpu(container: EngineContainer) -> bool:
    """Whether a container asks for a GPU, whole, sliced or by a claim."""
    resources = (*container.resources.limits, *container.resources.requests)
    return bool(container.resources.claims) or any(_ANY_GPU.match(name) for name in resources)


def gpus(container: EngineContainer) -> Mapping[str, int]:
    """The GPU resources a container asks for, with their numbers."""
    asked = {**container.resources.requests, **container.resources.limits}
    return {
        name: int(float(number))
        for name, number in asked.items()
        if _ANY_GPU.match(name) and _is_number(number)
    }


def _is_number(text: object) -> bool:
    return re.fullmatch(r"\d+(?:\.\d+)?", str(text)) is not None


def _labelled(pod: EnginePod) -> bool:
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    return (
        any(labels.get(name) == value for name, value in _VLLM_LABELS.items())
        or "vllm" in annotations.get(_RUNTIME, "")
        or _LLM_WORKLOAD.fullmatch(labels.get("app.kubernetes.io/component", "")) is not None
    )


def _likeliest(containers: list[EngineContainer]) -> EngineContainer:
    rank: Callable[[EngineContainer], tuple[bool, bool]] = lambda each: (  # noqa: E731
        each.name not in _PREFERRED,
        not uses_gpu(each),
    )
    return min(containers, key=rank)


def workload(pod: EnginePod) -> str:
    """What a person calls the thing this pod belongs to: `Deployment llm`, `InferenceService chat`."""
    labels = pod.metadata.labels
    for label, kind in _WORKLOAD_LABELS.items():
        if labels.get(label) and (
            kind != "LLMInferenceService" or labels.get("app.kubernetes.io/part-of") == "llminferenceservice"
        ):
            return f"{kind} {labels[label]}"
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    if owner is None:
        return f"Pod {pod.metadata.name}"
    template = labels.get("pod-template-hash")
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return f"Deployment {owner.name.removesuffix(f'-{template}')}"
    return f"{owner.kind} {owner.name}"


_WORKLOAD_LABELS: Final = {
    "serving.kserve.io/inferenceservice": "InferenceService",
    "app.kubernetes.io/name": "LLMInferenceService",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "ray.io/cluster": "RayCluster",
}


def leader_of(pod: EnginePod) -> str:
    """The leader of a group that this pod works for, if it is not the leader itself."""
    labels = pod.metadata.labels
    index = labels.get("leaderworkerset.sigs.k8s.io/worker-index", "0")
    if index != "0":
        return pod.metadata.annotations.get("leaderworkerset.sigs.k8s.io/leader-name", "the group's leader")
    if labels.get("ray.io/node-type") == "worker":
        return f"the head of RayCluster {labels.get('ray.io/cluster', '')}"
    return ""
