"""Every engine asks for the GPUs it needs, in a shape that vLLM can use."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.checks.vllm_mode import codes
from gpuctl.checks.vllm_mode.words import arguments_command, finding, get, in_spec
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, NotKnown, Reason, State, Unknown, value
from gpuctl.vllm.engine import Engine
from gpuctl.vllm.engines import uses_gpu
from gpuctl.vllm.facts import NODES, engines_of_vllm
from gpuctl.vllm.memory import GKE_SLICES, PLAIN, PRODUCT, offers_slices
from gpuctl.vllm.objects import EngineNode

MAPS_UUIDS_SINCE = (0, 25, 0)
RAY_NODE = "ray.io/node-type"
BATCH_FLAGS = ("max-num-batched-tokens", "max-num-seqs")


@every(engines_of_vllm, "every engine asks for the GPU it runs on", given())
def gpus_asked_for(engine: Engine) -> Iterator[Finding]:
    if _on_cpu(engine) or uses_gpu(engine.found.container) or engine.pod.spec.resource_claims:
        return
    if engine.pod.metadata.labels.get(RAY_NODE) == "head":
        raise NotKnown(Inapplicable("the head of a RayCluster leaves the GPUs to its workers"))
    yield finding(
        engine,
        codes.NO_GPU_ASKED,
        "asks for no GPU: on a node with the NVIDIA runtime it sees every GPU and takes memory that belongs "
        "to others, elsewhere it sees none",
        (in_spec(engine, f"no GPU in resources; image {engine.found.container.image}"),),
        get(engine.ref.pod),
        "ask for a GPU in resources.limits (production-stack: a fraction in requestGPU becomes 0, write a "
        "whole number); risk: that rolls the pods",
        cause="no gpu",
    )


def _on_cpu(engine: Engine) -> bool:
    cpu_image = (
        "huggingfaceserver" in engine.found.container.image and "gpu" not in engine.found.container.image
    )
    started_on_cpu = engine.start is not None and engine.start.device == "cpu"
    return (
        bool(engine.found.stack.platform)
        or cpu_image
        or started_on_cpu
        or engine.settings.get("device") == "cpu"
    )


@every(engines_of_vllm, "no engine is spread over MIG slices", given(Maybe(NODES)), Strength.PROOF)
def one_slice_per_engine(engine: Engine, nodes: State[Each[Ref, EngineNode]]) -> Iterator[Finding]:
    _must_have_slices(engine, nodes)
    resources = ", ".join(f"{name}: {engine.resources[name]}" for name in engine.mig)
    if engine.parallel:
        said = " and ".join(f"{name} parallelism {size}" for name, size in engine.parallel.items())
        yield finding(
            engine,
            codes.PARALLEL_OVER_SLICES,
            f"is to run with {said} over MIG slices: CUDA shows one slice to a process, and NCCL refuses "
            "slices of one GPU",
            (in_spec(engine, f"{said}; {resources}"), *_sliced_by_label(engine)),
            arguments_command(engine),
            "give it one larger slice and no parallelism, or whole GPUs; risk: that rolls the pods",
            cause="parallel",
        )
        return
    if engine.start is None:
        _must_be_seen(engine)
    if sum(engine.resources[name] for name in engine.mig) > 1:
        yield finding(
            engine,
            codes.SLICES_UNUSED,
            f"has several MIG slices ({resources}) and uses the first alone",
            (in_spec(engine, resources), *_sliced_by_label(engine)),
            get(engine.ref.pod),
            "ask for one slice, or for a larger one; risk: that rolls the pods",
            cause="slices",
        )


def _must_have_slices(engine: Engine, nodes: State[Each[Ref, EngineNode]]) -> None:
    """Raises `NotKnown` where it has no MIG slice, or what its node offers as GPUs may be slices."""
    if engine.mig:
        return
    if engine.pod.spec.node_name and not PLAIN.isdisjoint(engine.resources):
        _must_be_whole(engine, value(nodes).get(Ref(EngineNode.of, engine.pod.spec.node_name)))
    raise NotKnown(Inapplicable("it has no MIG slice"))


def _must_be_whole(engine: Engine, node: EngineNode | None) -> None:
    if node is not None and offers_slices(node.metadata.labels) is None:
        said = f"the labels of node {node.metadata.name} do not tell whether its GPUs are MIG slices"
        raise NotKnown(Unknown(Reason.NOT_ASKED, said, str(engine.ref)))


def _sliced_by_label(engine: Engine) -> Iterator[Evidence]:
    """Why what is named as a GPU is a slice."""
    if engine.node and not PLAIN.isdisjoint(engine.mig):
        labels = engine.node.metadata.labels
        name = GKE_SLICES if GKE_SLICES in labels else PRODUCT
        yield Evidence(engine.node.ref, f".metadata.labels['{name}']", labels[name])


def _must_be_seen(engine: Engine) -> None:
    """What an engine was started with must be known; raises `NotKnown`."""
    if engine.opaque:
        raise NotKnown(Unknown(Reason.NOT_ASKED, engine.opaque, str(engine.ref)))


@every(
    engines_of_vllm,
    "every engine on a MIG slice says how large its batches are",
    given(Maybe(NODES)),
    Strength.PROOF,
)
def batches_on_slices(engine: Engine, nodes: State[Each[Ref, EngineNode]]) -> Iterator[Finding]:
    _must_have_slices(engine, nodes)
    _must_be_seen(engine)
    missing = [f"--{name}" for name in BATCH_FLAGS if name not in engine.settings.flags]
    if len(missing) == len(BATCH_FLAGS):
        yield finding(
            engine,
            codes.SLICE_DEFAULTS,
            f"runs on a MIG slice without {' and '.join(missing)}: vLLM chooses them by the GPU's name and "
            "memory, which in a slice it may not ask, and then takes those of the smallest GPU (28 to 53 % "
            "of throughput lost on an H200 slice)",
            (in_spec(engine, f"neither {' nor '.join(missing)}"), *_sliced_by_label(engine)),
            arguments_command(engine),
            f"set {' and '.join(missing)}; risk: larger batches need more activation memory",
            cause="defaults",
        )


@every(engines_of_vllm, "no engine is given its device by UUID", given())
def devices_by_number(engine: Engine) -> Iterator[Finding]:
    value = engine.environment.known.get("CUDA_VISIBLE_DEVICES", "")
    version = engine.version
    if not value.startswith(("MIG-", "GPU-")) or (version and not version.before(*MAPS_UUIDS_SINCE)):
        return
    yield finding(
        engine,
        codes.DEVICE_BY_UUID,
        f"has a UUID in CUDA_VISIBLE_DEVICES, which vLLM {version or 'up to 0.24'} takes for a number: it "
        "fails with an error about the model's architecture",
        (in_spec(engine, f"CUDA_VISIBLE_DEVICES={value[:12]}…"),),
        arguments_command(engine),
        "leave CUDA_VISIBLE_DEVICES to the device plugin, or set it to 0; risk: that rolls the pods",
        cause="uuid",
        severity=None if version else Severity.WARNING,
    )
