"""Every engine that was started runs, and what kept one from it is called by its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Code, Finding
from gpuctl.checks.vllm_mode import codes
from gpuctl.checks.vllm_mode.words import (
    arguments_command,
    finding,
    gib,
    in_spec,
    line_with,
    log_command,
    quoted,
    switched,
)
from gpuctl.facts.fact import given
from gpuctl.facts.state import Inapplicable, Known, NotKnown
from gpuctl.vllm.engine import Engine
from gpuctl.vllm.facts import engines_of_vllm
from gpuctl.vllm.failures import Failure, Trouble

MANY = 2
ERROR_LINES = "Error|ERROR|failed|exceeds"
_PRICE = "upgrade; until then --enforce-eager, at its price"
_OTHERS = (
    "find the other process (`nvidia-smi --query-compute-apps=pid,used_memory --format=csv` on the node): an "
    "old pod that still terminates, another engine on the GPU, a keep-alive script; the model is not too big"
)
_SMALLER = (
    "lower --max-model-len, or give it more memory: a higher --gpu-memory-utilization, a quantised model, "
    "more GPUs, an fp8 KV cache; risk: longer requests are refused"
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a failure means: the end of `the engine …`, and what to do."""

    code: Code
    says: str
    remedy: str


@every(
    engines_of_vllm,
    "every engine that was started runs",
    given(),
    Strength.PROOF,
)
def running_engines(engine: Engine) -> Iterator[Finding]:
    if engine.state in ("not started", "worker"):
        raise NotKnown(Inapplicable(f"the engine is {engine.state}"))
    if engine.settings.wrong and not engine.status.ready:
        yield _wrong_arguments(engine)
        return
    failure = engine.failure
    if failure is not None and engine.fails:
        yield _failed(engine, failure)
    elif failure is None and _crashed(engine) and not engine.status.ready:
        yield _crashing(engine)
    elif engine.starts >= MANY:
        yield _several(engine)
    if engine.log is not None and not isinstance(engine.log, Known) and not engine.status.ready:
        raise NotKnown(engine.log)


def _crashed(engine: Engine) -> bool:
    status = engine.status
    return status.restart_count > 0 or status.state.terminated is not None


def _failed(engine: Engine, failure: Failure) -> Finding:
    found = diagnosis(engine, failure)
    start = (
        engine.log.value.starts[-1]
        if isinstance(engine.log, Known) and engine.log.value.starts
        else engine.start
    )
    quotes = start.quotes if start else ()
    last = next((quote for quote in reversed(quotes) if quote.text[:60] == failure.text[:60]), None)
    return finding(
        engine,
        found.code,
        f"does not start: {found.says}",
        (*quoted(engine, last), in_spec(engine, _last_end(engine))),
        log_command(
            engine, ERROR_LINES, previous=engine.status.state.running is not None and engine.starts == 0
        ),
        f"{found.remedy}{switched(engine, 'eager') if found.remedy == _PRICE else ''}",
        cause=found.code.id,
    )


def _last_end(engine: Engine) -> str:
    status = engine.status
    ended = status.state.terminated or status.last_state.terminated
    code = f", last exit code {ended.exit_code}" if ended else ""
    return f"not ready, {status.restart_count} restarts{code}"


def _crashing(engine: Engine) -> Finding:
    status = engine.status
    ended = status.state.terminated or status.last_state.terminated
    killed = ended is not None and ended.exit_code in (137, 143)
    code = codes.KILLED_WHILE_STARTING if killed else codes.FAILED
    says = (
        "is killed before it has started: loading, compiling and capturing take longer than its startup or "
        "liveness probe allows, or it used more memory than its limit"
        if killed
        else "ends again and again, and its log does not say why"
    )
    return finding(
        engine,
        code,
        says,
        (in_spec(engine, _last_end(engine)),),
        log_command(engine, previous=True),
        "give its startupProbe more time (failureThreshold) and see whether the container was OOMKilled; "
        "risk: that rolls the pods",
        cause=code.id,
    )


def _wrong_arguments(engine: Engine) -> Finding:
    word = engine.settings.wrong[0]
    return finding(
        engine,
        codes.WRONG_ARGUMENTS,
        f"does not start: vLLM's flag takes no value, so it refuses {word}",
        (in_spec(engine, f"argument {word}"),),
        arguments_command(engine),
        f"write {word.partition('=')[0]} alone, or leave it out; risk: that rolls the pods",
        cause="arguments",
    )


def _several(engine: Engine) -> Finding:
    return finding(
        engine,
        codes.SEVERAL_STARTS,
        f"shows {engine.starts} attempts to start in one log: something in the container restarts it, so "
        "Kubernetes does not count the failures",
        tuple(line_with(engine, "Error")) or (in_spec(engine, f"{engine.starts} starts in the log"),),
        log_command(engine, ERROR_LINES),
        "find out why the first attempt failed, and let the container end with the engine, so that "
        "Kubernetes sees it",
        cause="several",
    )


def diagnosis(engine: Engine, failure: Failure) -> Diagnosis:
    """What a failure means for this engine."""
    table = {
        Trouble.TAKEN_BY_OTHERS: lambda: _taken(failure),
        Trouble.KV_TOO_SMALL: lambda: _kv_too_small(failure),
        Trouble.NO_KV_MEMORY: lambda: _no_kv(engine),
        Trouble.PROFILING_RACE: lambda: _race(failure),
        Trouble.OUT_OF_MEMORY: lambda: _out_of_memory(engine),
        Trouble.MASKED_OUT_OF_MEMORY: lambda: _masked(engine),
    }
    made = table.get(failure.kind)
    return made() if made else _FIXED.get(failure.kind, _UNEXPLAINED)


def _taken(failure: Failure) -> Diagnosis:
    free, total, wanted = (failure.get(name) for name in ("free_gib", "total_gib", "wanted_gib"))
    says = (
        f"something else holds the GPU: {free} of {total} GiB are free, and its budget is {wanted} GiB. The "
        "model is not too big"
    )
    return Diagnosis(codes.TAKEN_BY_OTHERS, says, _OTHERS)


def _kv_too_small(failure: Failure) -> Diagnosis:
    length, needed, there = (failure.get(name) for name in ("max_model_len", "kv_needed_gib", "kv_avail_gib"))
    tokens, fits = failure.get("kv_tokens"), failure.get("fits_len")
    says = (
        f"one request of {length} tokens needs {needed} GiB of KV cache, and {there} GiB are left"
        if needed is not None
        else f"one request of {length} tokens does not fit into a KV cache of {tokens} tokens"
    )
    advice = f"set --max-model-len to {fits} or less; else " if fits else ""
    return Diagnosis(codes.KV_TOO_SMALL, f"{says}; eager mode would not cure that", advice + _SMALLER)


def _no_kv(engine: Engine) -> Diagnosis:
    ranks = engine.start.ranks if engine.start else ()
    v0 = engine.start is not None and engine.start.engine == "V0"
    others = [rank.non_torch for rank in ranks if v0 and (rank.non_torch or 0) >= MANY]
    held = gib(max((each or 0.0 for each in others), default=0.0))
    if others and engine.parallel:
        # NCCL's buffers of an engine on several GPUs lie outside of PyTorch as a neighbour's memory does.
        says = (
            f"no budget is left beside {held} outside of PyTorch: NCCL's buffers, or another process's memory"
        )
        return Diagnosis(codes.NO_KV_MEMORY, says, f"see that nothing else uses its GPUs; else {_SMALLER}")
    if others:
        says = f"another process holds about {held} of its GPU, so no budget is left"
        return Diagnosis(codes.TAKEN_BY_OTHERS, says, _OTHERS)
    says = "weights, activations and graphs take all of its budget"
    return Diagnosis(codes.NO_KV_MEMORY, says, _SMALLER)


def _race(failure: Failure) -> Diagnosis:
    before, after = failure.get("init_free_gib"), failure.get("cur_free_gib")
    says = (
        f"while it measured its memory, another process gave some back ({before} GiB free before, {after} "
        "GiB after); that is no lack of memory"
    )
    remedy = (
        "start it again; start engines that share a GPU one after another, or give each "
        "--kv-cache-memory-bytes"
    )
    return Diagnosis(codes.PROFILING_RACE, says, remedy)


def _out_of_memory(engine: Engine) -> Diagnosis:
    graphs = engine.start is not None and any(sign.value.startswith("graph") for sign in engine.start.signs)
    where = (
        "while or after it captured graphs, which lie outside of the budget before vLLM 0.20"
        if graphs
        else ""
    )
    says = f"the GPU's memory ran out {where}".rstrip()
    remedy = (
        "lower --gpu-memory-utilization or --max-num-seqs, or capture fewer sizes; eager mode only if "
        f"nothing else helps{switched(engine, 'eager')}"
        if graphs
        else "use a smaller or quantised model, or more GPUs; see that nothing else uses the GPU"
    )
    return Diagnosis(codes.CAPTURE_OUT_OF_MEMORY if graphs else codes.OUT_OF_MEMORY, says, remedy)


def _masked(engine: Engine) -> Diagnosis:
    where = " in its MIG slice" if engine.mig else ""
    says = (
        f"the memory ran out{where}; the assertion about NVML only hides it, because NVML may not be "
        "asked there"
    )
    return Diagnosis(codes.OUT_OF_MEMORY, says, _SMALLER)


_UNEXPLAINED = Diagnosis(
    codes.FAILED,
    "its last words name no cause that is known; the cause stands earlier in the log",
    "read the first error of the log, not the last",
)
_FIXED = {
    Trouble.CAPTURE_OUT_OF_MEMORY: Diagnosis(
        codes.CAPTURE_OUT_OF_MEMORY,
        "the GPU's memory ran out while graphs were captured, which lie outside of the budget before vLLM "
        "0.20",
        "lower --gpu-memory-utilization or --max-num-seqs, or capture fewer sizes; eager mode only if "
        "nothing else helps",
    ),
    Trouble.MAMBA_BLOCKS: Diagnosis(
        codes.KV_TOO_SMALL, "its Mamba cache holds fewer requests than --max-num-seqs", "lower --max-num-seqs"
    ),
    Trouble.MIG_UUID: Diagnosis(
        codes.DEVICE_BY_UUID,
        "CUDA_VISIBLE_DEVICES names a device by UUID, which this version takes for a number; what it says of "
        "the model's architecture is a consequence",
        "leave CUDA_VISIBLE_DEVICES to the device plugin, or set it to 0; risk: that rolls the pods",
    ),
    Trouble.SERVICE_LINK: Diagnosis(
        codes.SERVICE_LINK,
        "a Service named vllm makes the kubelet set VLLM_PORT to its address, which vLLM takes for its own "
        "port",
        "set enableServiceLinks: false in the pod template, or rename the Service; risk: that rolls the pods",
    ),
    Trouble.NO_GPU: Diagnosis(
        codes.NO_GPU_SEEN,
        "its container sees no GPU",
        "ask for one in resources.limits (nvidia.com/gpu or a MIG slice), and see that the NVIDIA runtime "
        "is in use",
    ),
    Trouble.NOT_INSPECTED: Diagnosis(
        codes.FAILED,
        "it could not look into the model's architecture, which mostly hides an earlier error",
        "read the first error of the log, not the last",
    ),
    Trouble.PORT_TAKEN: Diagnosis(
        codes.PORT_TAKEN,
        "another process in the pod (or on the node, with hostNetwork) has its port",
        "give one of them another --port; risk: that rolls the pods",
    ),
    Trouble.WRONG_ARGUMENTS: Diagnosis(
        codes.WRONG_ARGUMENTS,
        "vLLM refuses its arguments",
        "correct the arguments; risk: that rolls the pods",
    ),
    Trouble.KILLED: Diagnosis(
        codes.KILLED_WHILE_STARTING,
        "it is killed while it loads, compiles or captures: its startup or liveness probe allows too "
        "little time",
        "give its startupProbe more time (failureThreshold); risk: that rolls the pods",
    ),
    Trouble.MPS_BUSY: Diagnosis(
        codes.FAILED,
        "the GPU is shared by MPS, and its server refuses this container (another user, or an incompatible "
        "driver)",
        "run MPS clients as one user, or share the GPU by MIG",
    ),
    Trouble.CAPTURE_REFUSED: Diagnosis(
        codes.FAILED,
        "capturing graphs fails on this stack of driver, NCCL and vLLM, while eager mode works",
        _PRICE,
    ),
    Trouble.DIED: Diagnosis(
        codes.FAILED,
        "the engine died while it served, and its API answers errors only",
        "probe /health, so that Kubernetes restarts it; read the first error of the log",
    ),
}
