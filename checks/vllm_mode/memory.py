"""What an engine needs of its GPU fits, with room for what vLLM does not count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.vllm_mode import codes
from gpuctl.checks.vllm_mode.words import finding, gib, in_spec, line_with, log_command, percent
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, NotKnown, Reason, Unknown
from gpuctl.nvidia.expected import SHARED
from gpuctl.vllm import baseline as baselines
from gpuctl.vllm import memory as memories
from gpuctl.vllm.baseline import MEMORY_BASELINE, MemoryBaseline
from gpuctl.vllm.engine import Engine
from gpuctl.vllm.engines import EngineRef
from gpuctl.vllm.facts import NODES, engines_of_vllm
from gpuctl.vllm.memory import Memory
from gpuctl.vllm.objects import EngineNode

TOO_HIGH = 0.97
PREFIX = "nvidia.com/"
SHARING = "sharing-strategy"
TIME_SLICING = "time-slicing"
V0_NON_TORCH_GIB = 2.0
REFUSES_SINCE = (0, 9, 1)
ALL_BUT_A_TENTH = 0.9
MEMORY_LINES = "GiB|KV cache|gpu_memory_utilization|blocks"


@every(
    engines_of_vllm,
    "every engine's graphs fit beside or inside of its memory budget",
    given(POLICY),
    Strength.PROOF,
)
def room_for_graphs(engine: Engine, policy: Policy) -> Iterator[Finding]:
    if not engine.mode.graphs:
        raise NotKnown(Inapplicable("it runs eager"))
    reserve = policy.checks.vllm_mode.graph_reserve_gib
    memory = engine.memory
    tight = [each for each in memory if _tight(each, reserve)]
    if tight:
        yield _outside(engine, min(tight, key=lambda each: each.free_outside or 0.0), reserve)
    elif (engine.utilization or 0.0) >= TOO_HIGH and not _manual(engine):
        yield _too_high(engine)
    else:
        _must_fit(engine, memory)


def _must_fit(engine: Engine, memory: Sequence[Memory]) -> None:
    """Raises `NotKnown` unless the budget holds the graphs, or their size and what is left are known."""
    start = engine.told
    inside = memories.graphs_inside(start, engine.version)
    if inside:
        return
    if start.failure or _manual(engine):
        raise NotKnown(
            Inapplicable("it did not start" if start.failure else "its KV cache has a size of its own")
        )
    if inside is None:
        raise _untold(engine, "its version, by which graphs lie within its budget or beside it, is not known")
    if not memory or any(each.rank.graphs is None for each in memory):
        raise _untold(engine, "its log does not tell how much memory its graphs took")
    if any(each.free_outside is None for each in memory):
        raise _untold(engine, "neither its log nor the node's labels tell how large its GPU is")


def _untold(engine: Engine, what: str) -> NotKnown:
    return NotKnown(Unknown(Reason.NOT_ASKED, what, str(engine.ref)))


def _tight(memory: Memory, reserve: float) -> bool:
    free = memory.free_outside
    return memory.outside_graphs > 0 and free is not None and free < reserve


def _manual(engine: Engine) -> bool:
    return "kv-cache-memory-bytes" in engine.settings.flags or bool(engine.start and engine.start.manual_kv)


def _outside(engine: Engine, memory: Memory, reserve: float) -> Finding:
    rank = memory.rank
    total, budget, graphs = memory.total or 0.0, memory.budget or 0.0, memory.outside_graphs
    short = "" if memory.inside is False else " (its estimate was short by as much)"
    name = f" (rank {rank.name})" if rank.name else ""
    return finding(
        engine,
        codes.GRAPHS_OUTSIDE,
        f"captured {gib(graphs)} of graphs outside of its budget{short}{name}: of {gib(total)}, "
        f"{gib(budget)} are budget, which leaves {gib(memory.free_outside or 0.0)}, less than the "
        f"{gib(reserve)} that should stay free; it may run out of memory under load",
        (
            *line_with(engine, "Graph capturing finished"),
            *line_with(engine, "total_gpu_memory"),
            *line_with(engine, "profiling"),
            in_spec(engine, f"utilisation {percent(engine.utilization or 0.0)}{_by_device(engine)}"),
        ),
        log_command(engine, MEMORY_LINES),
        f"lower --gpu-memory-utilization of {engine.workload} to "
        f"{max(0.1, (total - graphs - 2 * reserve) / total if total else 0.85):.2f} or capture fewer sizes "
        "(--max-num-seqs, --cudagraph-capture-sizes); not eager mode. Risk: the KV cache shrinks by as much",
        cause="outside",
    )


def _by_device(engine: Engine) -> str:
    size = engine.device_gib
    return f", GPU or slice of {gib(size)} by the node's labels" if size else ""


def _too_high(engine: Engine) -> Finding:
    return finding(
        engine,
        codes.TOO_HIGH,
        f"runs graphs at a utilisation of {percent(engine.utilization or 0.0)}: what is left holds neither "
        "the driver's context nor a graph estimate that came out too small (0.98 is known to crash where "
        "0.97 works)",
        (
            in_spec(engine, f"--gpu-memory-utilization {engine.utilization}"),
            *line_with(engine, "utilization"),
        ),
        log_command(engine, MEMORY_LINES),
        f"set --gpu-memory-utilization of {engine.workload} to 0.95 or less; risk: a little less KV cache",
        cause="high",
    )


@every(
    engines_of_vllm,
    "engines that share a GPU ask together for no more than it has",
    given(POLICY, engines_of_vllm, NODES),
)
def shared_gpus(
    engine: Engine, policy: Policy, engines: Each[EngineRef, Engine], nodes: Each[Ref, EngineNode]
) -> Iterator[Finding]:
    if not engine.pod.spec.node_name or not nodes.get(Ref(EngineNode.of, engine.pod.spec.node_name)):
        raise NotKnown(Inapplicable("its node is gone, or it has none yet"))
    if engine.node is None or not _pool(engine):
        raise NotKnown(Inapplicable("its GPU is its own, or nobody says it is not"))
    node, pool = engine.node.metadata.name, _pool(engine)
    together = [
        each for _, each in engines.known() if each.pod.spec.node_name == node and _pool(each) == pool
    ]
    counted = [each for each in together if not _manual(each) and each.utilization is not None]
    devices, called = _device_count(engine, pool), _called(pool)
    total = sum((each.utilization or 0.0) * _spread(each) for each in counted)
    limit = policy.checks.vllm_mode.shared_utilization
    if not devices:
        raise _untold(engine, f"the labels of node {node} do not count its {called}")
    if len(together) > 1 and total > limit * devices:
        yield finding(
            engine,
            codes.SHARED_TOO_MUCH,
            f"shares the {devices} {called} of node {node} with {len(together) - 1} others by time-slicing, "
            f"which gives each the whole memory: together they ask for {percent(total)} of "
            f"{percent(float(devices))}",
            tuple(_share(each) for each in counted[:5]),
            f"kubectl get pods -A --field-selector spec.nodeName={node}",
            "divide the memory: --gpu-memory-utilization of all engines on one of them must add up to "
            f"{limit} at most, or give each --kv-cache-memory-bytes; start them one after another. MIG "
            "slices that nobody shares would be theirs alone",
            cause=f"shared {node}",
        )
        return
    for each in together:
        _must_be_counted(each, engine)


def _must_be_counted(each: Engine, engine: Engine) -> None:
    if _manual(each):
        return
    if each.utilization is None:
        raise _untold(engine, f"how much memory {each.ref} may use is not known")
    if _asked(each) > 1 and each.opaque and (each.start is None or each.start.tensor_parallel is None):
        raise _untold(engine, f"over how many of its {_called(_pool(each))} {each.ref} spreads is not known")


def _pool(engine: Engine) -> str:
    """What it shares by time-slicing, as labels name it: `gpu` or `mig-1g.10gb`; empty for nothing."""
    labels = engine.node.metadata.labels if engine.node else {}
    names = (_label(each) for each in engine.resources if each in memories.PLAIN or memories.is_slice(each))
    return next((name for name in names if labels.get(f"{PREFIX}{name}.{SHARING}") == TIME_SLICING), "")


def _label(resource: str) -> str:
    return resource.removeprefix(PREFIX).removesuffix(SHARED)


def _called(pool: str) -> str:
    return "GPUs" if pool == "gpu" else f"slices {pool}"


def _device_count(engine: Engine, pool: str) -> int:
    count = engine.node.metadata.labels.get(f"{PREFIX}{pool}.count", "") if engine.node else ""
    return int(count) if count.isdecimal() and len(count) < 6 else 0  # noqa: PLR2004


def _asked(engine: Engine) -> int:
    pool = _pool(engine)
    return sum(number for name, number in engine.resources.items() if _label(name) == pool)


def _spread(engine: Engine) -> int:
    """On how many devices it takes its share: of what it asks for beyond its parallelism it uses nothing."""
    return max(1, min(_asked(engine), math.prod(engine.parallel.values())))


def _share(engine: Engine) -> Evidence:
    where, spread = f"container {engine.ref.container}", _spread(engine)
    each = f" on each of {spread}" if spread > 1 else ""
    return Evidence(engine.ref.pod, where, f"utilisation {percent(engine.utilization or 0.0)}{each}")


@every(
    engines_of_vllm,
    "every engine's KV cache holds what the policy asks",
    given(POLICY),
    Strength.PROOF,
)
def enough_kv_cache(engine: Engine, policy: Policy) -> Iterator[Finding]:
    start = engine.told
    if start.failure:
        raise NotKnown(Inapplicable("it did not start"))
    section = policy.checks.vllm_mode
    if start.concurrency is not None and start.concurrency < section.concurrency:
        yield finding(
            engine,
            codes.LOW_CONCURRENCY,
            f"can serve {start.concurrency:g} requests of {start.max_model_len or 'the maximum'} tokens at a "
            f"time, and the policy asks for {section.concurrency:g}",
            tuple(line_with(engine, "Maximum concurrency")),
            log_command(engine, MEMORY_LINES),
            f"lower --max-model-len of {engine.workload} to what requests need, or give it more memory; "
            "risk: longer requests are refused",
            cause="concurrency",
        )
    share = _smallest_share(engine.memory)
    if share is not None and share < section.kv_share:
        yield finding(
            engine,
            codes.SMALL_KV_SHARE,
            f"has {percent(round(share, 3))} of its budget for the KV cache, and the policy asks for "
            f"{percent(section.kv_share)}",
            tuple(line_with(engine, "KV")),
            log_command(engine, MEMORY_LINES),
            "use a smaller or quantised model, more GPUs, or an fp8 KV cache; risk: as of any change of "
            "the model",
            cause="share",
        )
    if start.concurrency is None or (section.kv_share and share is None):
        raise _untold(engine, "its log does not tell how much its KV cache holds")


def _smallest_share(memory: Iterable[Memory]) -> float | None:
    shares = (each.rank.kv / each.budget for each in memory if each.rank.kv is not None and each.budget)
    return min(shares, default=None)


@every(
    engines_of_vllm,
    "every engine had its GPU to itself when it started",
    given(),
    Strength.PROOF,
)
def alone_at_start(engine: Engine) -> Iterator[Finding]:
    ranks = engine.memory
    for memory in ranks:
        others = _others(engine, memory)
        if others is not None:
            rank = f" (rank {memory.rank.name})" if memory.rank.name else ""
            yield finding(
                engine,
                codes.CO_TENANT,
                f"found {gib(others)} of its GPU taken when it started{rank}, {_by_whom(engine)}",
                tuple(
                    line_with(
                        engine, "non_torch" if engine.start and engine.start.engine == "V0" else "Free memory"
                    )
                ),
                log_command(engine, MEMORY_LINES),
                "find the process (`nvidia-smi --query-compute-apps=pid,used_memory --format=csv` on the "
                "node): an old pod that still terminates, a second engine, a keep-alive script; risk of "
                "ending it: that of its owner",
                mark=memory.rank.name,
                cause="co-tenant",
            )
    if not _asks_for_a_free_gpu(engine) and not (ranks and all(_is_told(engine, each) for each in ranks)):
        if engine.told.failure:
            raise NotKnown(Inapplicable("it did not start"))
        raise _untold(engine, "its log does not tell how much of its GPU was free")


def _by_whom(engine: Engine) -> str:
    """V0 tells what lies outside of PyTorch and no more."""
    return (
        "most likely by another process (of a vGPU, by its host)" if _is_v0(engine) else "by another process"
    )


def _asks_for_a_free_gpu(engine: Engine) -> bool:
    """Whether it could not have started beside a neighbour that matters: since 0.9.1 the V1 engine refuses
    to start where less than its budget is free."""
    start, version = engine.told, engine.version
    refuses = version is not None and not version.before(*REFUSES_SINCE) and start.engine != "V0"
    return (
        refuses and start.complete and not _manual(engine) and (engine.utilization or 0.0) >= ALL_BUT_A_TENTH
    )


def _is_told(engine: Engine, memory: Memory) -> bool:
    """Whether the log says how much of the GPU was taken."""
    by_v0 = _outside_of_pytorch(engine, memory) is not None
    return by_v0 or (memory.others_at_start is not None and bool(memory.total))


def _others(engine: Engine, memory: Memory) -> float | None:
    """Memory that somebody else holds, if it is more than drivers and contexts take."""
    taken, total = memory.others_at_start, memory.total
    if taken is not None and total and taken >= max(2.0, 0.1 * total):
        return taken
    outside = _outside_of_pytorch(engine, memory)
    return outside if outside is not None and outside >= V0_NON_TORCH_GIB else None


def _outside_of_pytorch(engine: Engine, memory: Memory) -> float | None:
    """What V0 says lies there, where that tells of others."""
    # NCCL's buffers of an engine on several GPUs lie there, too, and may be as large as a neighbour.
    return memory.rank.non_torch if _is_v0(engine) and not engine.parallel else None


def _is_v0(engine: Engine) -> bool:
    version = engine.version
    v0 = engine.start is not None and engine.start.engine == "V0"
    return v0 and (version is None or version.before(0, 11, 0))


@every(
    engines_of_vllm,
    "every engine's memory is as it was in the baseline",
    given(MEMORY_BASELINE),
    Strength.PROOF,
)
def like_the_baseline(engine: Engine, baseline: MemoryBaseline | None) -> Iterator[Finding]:
    if baseline is None:
        raise NotKnown(Inapplicable("no baseline was given (gpuctl vllm --memory-baseline FILE)"))
    before = baseline.of(engine)
    if before is None:
        raise NotKnown(Inapplicable("the baseline does not know it"))
    now = baselines.measured(engine)
    if now is None:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "its log does not tell its memory", str(engine.ref)))
    changes = tuple(baselines.drift(before, now))
    if changes:
        yield finding(
            engine,
            codes.DRIFTED,
            f"needs its GPU otherwise than on {baseline.taken_at:%Y-%m-%d}: {'; '.join(changes)}",
            (
                Evidence(
                    engine.ref.pod,
                    "memory baseline",
                    f"vLLM {before.version or 'unknown'}, {before.mode or 'mode unknown'}",
                ),
                in_spec(engine, f"now vLLM {now.version or 'unknown'}, {now.mode or 'mode unknown'}"),
                *line_with(engine, "KV cache"),
            ),
            log_command(engine, MEMORY_LINES),
            "find out what changed (version, model, arguments, a neighbour on the GPU); take a new baseline "
            "with `gpuctl vllm --save-memory-baseline FILE` once it is meant to be so",
            cause="drift",
        )
