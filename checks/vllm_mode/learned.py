"""What was learned of each engine, whatever the verdict: `subjects` of the JSON report, and `gpuctl vllm`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.vllm_mode.requirement import requirement
from gpuctl.checks.vllm_mode.words import mapping
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.metrics import Labels, Points
from gpuctl.facts.state import Each, Known, State, attempt
from gpuctl.vllm.engine import Engine, value_of
from gpuctl.vllm.engines import EngineRef
from gpuctl.vllm.facts import engines_of_vllm
from gpuctl.vllm.log import Load
from gpuctl.vllm.memory import PRODUCT, Memory
from gpuctl.vllm.mode import Mode
from gpuctl.vllm.utilisation import METRICS, Usage, of_engine


@given(engines_of_vllm, POLICY, Maybe(METRICS))
def what_is_known_of_engines(
    engines: Each[EngineRef, Engine], policy: Policy, series: State[Each[Labels, Points]]
) -> Each[Ref, Mapping[str, Any]]:
    """By pod, for a pod may run several."""
    pods: dict[Ref, list[dict[str, Any]]] = {}
    for ref, engine in engines.known():
        pods.setdefault(ref.pod, []).append({**_facts(engine, policy), **_past_hour(series, ref)})
    return Each({pod: Known({"engines": found}) for pod, found in pods.items()}, tuple(engines.gaps()))


def _past_hour(series: State[Each[Labels, Points]], ref: EngineRef) -> dict[str, Any]:
    found = attempt(lambda: of_engine(series, ref.pod, ref.container))
    if isinstance(found, Known):
        return mapping(pastHour=[_usage(each) for each in found.value])
    return {"pastHourUnknown": str(found)}


def _facts(engine: Engine, policy: Policy) -> dict[str, Any]:
    start = engine.start
    mode = attempt(lambda: engine.mode)
    shown = mode.value if isinstance(mode, Known) else engine.seen
    memory = attempt(lambda: engine.memory)
    return mapping(
        container=engine.ref.container,
        image=engine.found.container.image,
        stack=engine.found.stack.name,
        recognisedBy=engine.found.by,
        workload=engine.workload,
        leader=engine.leader,
        state=engine.state,
        version=engine.version_text,
        engine=engine.generation,
        model=_model(engine),
        mode=_mode(shown) if shown else None,
        modeUnknown=None if isinstance(mode, Known) else str(mode),
        specified=_in_words(engine.specified) if engine.process else None,
        planned=_in_words(engine.planned),
        askedForEager=engine.asked_for_eager,
        required=requirement(engine, policy).mode,
        node=engine.pod.spec.node_name,
        gpu=mapping(
            resources=dict(engine.resources),
            product=engine.node.metadata.labels.get(PRODUCT) if engine.node else "",
            gib=engine.device_gib,
        ),
        utilization=engine.utilization,
        parallel=dict(engine.parallel),
        maxModelLen=start.max_model_len if start else None,
        kvTokens=_kv_tokens(engine),
        gpuBlocks=start.gpu_blocks if start else None,
        concurrency=start.concurrency if start else None,
        ranks=[_rank(each) for each in memory.value] if isinstance(memory, Known) else None,
        load=_load(engine),
        loadUnknown=_load_unknown(engine),
        starts=engine.starts or None,
        failure=mapping(
            kind=engine.failure.kind.value.replace("_", "-"),
            text=engine.failure.text,
            **dict(engine.failure.values),
        )
        if engine.failure
        else None,
        evidence=[mapping(text=each.text, at=each.at) for each in start.quotes] if start else None,
        logUnknown=str(engine.log) if engine.log is not None and not isinstance(engine.log, Known) else None,
    )


def _usage(usage: Usage) -> dict[str, Any]:
    return mapping(
        metric=usage.metric,
        device=dict(usage.device),
        mean=round(usage.mean, 4),
        peak=round(usage.peak, 4),
        counted=usage.counted,
    )


def _model(engine: Engine) -> str:
    told = engine.start.model if engine.start else ""
    words = engine.launch.words or ()
    first = words[0] if words and not words[0].startswith("-") else ""
    return told or engine.settings.get("model") or engine.settings.get("served-model-name") or first


def _mode(mode: Mode) -> dict[str, Any]:
    return mapping(
        graphs=mode.graphs,
        variant=mode.variant,
        confidence=mode.confidence.value,
        why=mode.why,
        evidence=mode.quote.text if mode.quote else "",
        at=mode.quote.at if mode.quote else None,
    )


def _rank(memory: Memory) -> dict[str, Any]:
    rank = memory.rank
    return mapping(
        name=rank.name,
        weightsGib=rank.weights,
        activationGib=rank.activation,
        nonTorchGib=rank.non_torch,
        consumedGib=rank.consumed,
        graphsGib=rank.graphs,
        graphsEstimateGib=rank.graphs_estimate,
        kvGib=rank.kv,
        budgetGib=memory.budget,
        totalGib=memory.total,
        graphsInsideBudget=memory.inside,
        freeOutsideGib=memory.free_outside,
        takenByOthersGib=memory.others_at_start,
    )


def _load_unknown(engine: Engine) -> str:
    """Why it may be busier or calmer than the log's beginning says."""
    if engine.metered is not None:
        return ""
    lost = engine.log.value.without_end if isinstance(engine.log, Known) else None
    return str(lost) if lost else ""


def _in_words(planned: State[Mode]) -> str:
    return str(planned.value) if isinstance(planned, Known) else value_of(planned)


def _kv_tokens(engine: Engine) -> int | None:
    told = engine.start.kv_tokens if engine.start else None
    return told or (engine.metered.kv_tokens if engine.metered else None)


def _load(engine: Engine) -> dict[str, Any] | None:
    """How busy it is: now, if it was asked, else when its log said so last."""
    now = engine.metered
    if now is not None:
        return mapping(
            running=now.running,
            waiting=now.waiting,
            kvUsagePercent=None if now.kv_usage is None else round(now.kv_usage * 100, 1),
            preemptions=now.preemptions,
            source="/metrics",
        )
    return _logged_load(engine)


def _logged_load(engine: Engine) -> dict[str, Any] | None:
    load: Load | None = engine.log.value.load if isinstance(engine.log, Known) else None
    if load is None:
        return None
    peak = engine.log.value.peak_kv_usage if isinstance(engine.log, Known) else None
    return mapping(
        running=load.running,
        waiting=load.waiting,
        kvUsagePercent=load.kv_usage,
        peakKvUsagePercent=peak,
        preemptions=load.preemptions,
        at=load.at or load.order,
        source="log",
    )
