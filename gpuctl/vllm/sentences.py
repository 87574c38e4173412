"""The sentences of vLLM that tell something, version by version, and what each of them tells."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from gpuctl.vllm import fields
from gpuctl.vllm.attempts import MEMORY, OPENING, SERVING, WEIGHTS, Attempt, Collected, rank_name
from gpuctl.vllm.failures import failure
from gpuctl.vllm.lines import Line
from gpuctl.vllm.log import Load, Sign

_Act = Callable[[Collected, Line, "re.Match[str]"], None]
_N: Final = r"(-?\d+(?:\.\d+)?)"


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _count(text: str | None) -> int | None:
    return int(text.replace(",", "")) if text else None


def _banner(reader: Collected, line: Line, found: re.Match[str]) -> None:
    reader.attempt(line, OPENING, "banner").set(version=found[1])


def _args(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, OPENING, "args")
    told = fields.arguments(found[1])
    attempt.set(
        asked=told.eager,
        eager_flag=told.eager if told.complete or told.eager else None,
        utilization=told.utilization,
        tensor_parallel=told.tensor_parallel,
        pipeline_parallel=told.pipeline_parallel,
        data_parallel=told.data_parallel,
        max_model_len=told.max_model_len,
        model=told.model,
    )
    attempt.show(line)


def _config(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, OPENING, "config")
    told = fields.configuration(found[3])
    version = found[2]
    attempt.set(
        version=version,
        engine=found[1] or ("V1" if line.process.startswith("EngineCore") else "V0"),
        eager_flag=told.eager,
        graph_mode=told.graph_mode,
        level=told.level,
        use_graphs=told.use_graphs,
        device=told.device,
        tensor_parallel=told.tensor_parallel,
        pipeline_parallel=told.pipeline_parallel,
        data_parallel=told.data_parallel,
        max_model_len=told.max_model_len,
        model=told.model,
    )
    attempt.show(line, Sign.CONFIG)


def _sign(sign: Sign, *, graph_mode: str = "", engine: str = "", estimated: bool = False) -> _Act:
    def act(reader: Collected, line: Line, _found: re.Match[str]) -> None:
        stage = MEMORY if sign in (Sign.CAPTURING, Sign.CAPTURED) else OPENING + 1
        attempt = reader.attempt(line, max(stage, MEMORY))
        _engine(attempt, line, engine)
        if sign is not Sign.COMPILING or Sign.COMPILING not in attempt.signs:
            attempt.show(line, None if sign in attempt.signs else sign)
        attempt.signs.add(sign)
        if graph_mode:
            attempt.set(graph_mode=graph_mode)
        if estimated:
            attempt.set(estimated=True)

    return act


def _eager(reader: Collected, line: Line, _found: re.Match[str]) -> None:
    """Said before anything is loaded, by two processes, so it neither opens nor ends an attempt."""
    attempt = reader.attempt(line, OPENING, f"eager {line.message[:20]}")
    attempt.show(line, Sign.EAGER)


def _fallback(reader: Collected, line: Line, _found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY if reader.starts else OPENING)
    attempt.show(line, Sign.FALLBACK)
    attempt.set(graph_mode="NONE")


def _downgrade(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    attempt.set(graph_mode=found[1])
    attempt.show(line, Sign.FALLBACK if found[1] == "NONE" else Sign.DOWNGRADE)


def _done(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    _engine(attempt, line)
    attempt.rank(line, graphs=_number(found[1]))
    attempt.show(line, Sign.CAPTURED)


def _pool(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    attempt.rank(line, graphs=_number(found[1]), graphs_estimate=_number(found[2]))
    attempt.show(line, Sign.CAPTURED)


def _weights(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, WEIGHTS, "weights")
    _engine(attempt, line)
    attempt.rank(line, weights=_number(found[1]))
    attempt.show(line)


def _engine(attempt: Attempt, line: Line, engine: str = "") -> None:
    """Which engine it is, where no configuration line says so: by the process or the file that speaks."""
    if line.process == "VllmWorkerProcess":  # the driver is the one without a prefix
        attempt.workers |= {f"VllmWorker pid={line.pid}", "VllmWorker driver"}
    elif line.process.startswith(("VllmWorker_", "Worker_")):
        attempt.workers.add(line.process)
    known = (
        engine
        or _ENGINE_BY_PROCESS.get(line.process.partition("_")[0], "")
        or _ENGINE_BY_MODULE.get(line.module, "")
    )
    if known and "engine" not in attempt.values:
        attempt.set(engine=known)


_ENGINE_BY_PROCESS: Final = {
    "EngineCore": "V1",
    "Worker": "V1",
    "VllmWorker": "V1",
    "VllmWorkerProcess": "V0",
}
_ENGINE_BY_MODULE: Final = {
    "gpu_executor.py": "V0",
    "distributed_gpu_executor.py": "V0",
    "executor_base.py": "V0",
    "engine.py": "V0",
    "llm_engine.py": "V0",
    "worker.py": "V0",
    "gpu_worker.py": "V1",
    "gpu_model_runner.py": "V1",
    "kv_cache_utils.py": "V1",
    "core.py": "V1",
    "loggers.py": "V1",
}


def _profile(reader: Collected, line: Line, found: re.Match[str]) -> None:
    """v0.6.4 alone sums up in one line."""
    attempt = reader.attempt(line, MEMORY)
    _engine(attempt, line)
    total, _with_weights, non_torch, kv, utilization = (float(each) for each in found.groups())
    attempt.rank(line, total=total, non_torch=non_torch, kv=kv, budget=round(total * utilization, 2))
    attempt.set(utilization=utilization)
    attempt.show(line)


def _budget(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    _engine(attempt, line, "V0")
    attempt.rank(line, total=_number(found[1]), budget=_number(found[3]))
    attempt.set(utilization=_number(found[2]))
    attempt.show(line)


def _split(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    weights, non_torch, activation, kv = (float(each) for each in found.groups())
    attempt.rank(line, non_torch=non_torch, activation=activation, kv=kv)
    attempt.ranks[rank_name(line)].setdefault("weights", weights)  # the line before has more digits
    attempt.show(line)


def _blocks(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    _engine(attempt, line)
    attempt.set(gpu_blocks=_count(found[1]))
    attempt.show(line)


def _tokens(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    _engine(attempt, line, "V1")
    tokens = _count(found[1])
    least = attempt.values.get("kv_tokens")
    attempt.set(kv_tokens=min(tokens, least) if isinstance(least, int) and tokens else tokens)
    if found[2]:
        attempt.set(concurrency=_number(found[3]))
        attempt.values.setdefault("max_model_len", _count(found[2]))
    attempt.show(line)


def _kv_gib(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    _engine(attempt, line, "V1")
    attempt.rank(line, kv=_number(found[1]))
    attempt.show(line)


def _concurrency(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    _engine(attempt, line)
    least = attempt.values.get("concurrency")
    told = float(found[2])
    attempt.set(concurrency=min(told, least) if isinstance(least, float) else told)
    attempt.values.setdefault("max_model_len", _count(found[1]))
    attempt.show(line)


def _estimate(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    _engine(attempt, line)
    attempt.rank(line, graphs_estimate=_number(found[1]))
    attempt.set(estimated=True)
    attempt.show(line, Sign.CAPTURING)


def _inside(inside: bool) -> _Act:
    def act(reader: Collected, line: Line, found: re.Match[str]) -> None:
        attempt = reader.attempt(line, MEMORY)
        attempt.set(estimate_inside=inside)
        attempt.values.setdefault("utilization", _number(found[1]))
        attempt.show(line)

    return act


def _breakdown(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    _engine(attempt, line, "V1")
    free, total, utilization, budget, usage, kv = found.groups()
    attempt.rank(
        line,
        total=float(total),
        budget=float(budget),
        free_at_start=float(free),
        kv=float(kv),
        **_usage(usage),
    )
    attempt.set(utilization=float(utilization))
    attempt.show(line)


_USED: Final = {
    "weight": "weights",
    "consumed memory (weights + non-torch)": "consumed",
    "peak activation": "activation",
    "non-torch": "non_torch",
    "non-torch memory": "non_torch",
    "CUDAGraph memory": "graphs",
}


def _usage(text: str) -> Mapping[str, float]:
    """`15.18 GiB for weight, 1.2 GiB for peak activation, …`: what each part is for."""
    parts = re.findall(rf"{_N} GiB for ([\w ()+-]+?)(?=,|\.|$)", text)
    return {_USED[name.strip()]: float(number) for number, name in parts if name.strip() in _USED}


def _manual(reader: Collected, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    attempt.set(manual_kv=True)
    attempt.rank(line, free_at_start=_number(found[1]), kv=_number(found[2]))
    attempt.show(line)


def _initialised(reader: Collected, line: Line, _found: re.Match[str]) -> None:
    attempt = reader.attempt(line, MEMORY)
    _engine(attempt, line)
    attempt.set(ready=True)


def _serving(reader: Collected, line: Line, _found: re.Match[str]) -> None:
    attempt = reader.attempt(line, SERVING)
    attempt.signs.add(Sign.SERVING)
    attempt.set(ready=True)


def _steady(reader: Collected, line: Line, found: re.Match[str]) -> None:
    reader.steady = True
    usage = float(found["usage"])
    load = Load(int(found["running"]), int(found["waiting"]), usage, line.at, line.order)
    reader.load = load
    reader.peak = usage if reader.peak is None else max(reader.peak, usage)
    if not reader.starts:
        reader.starts.append(Attempt())
    attempt = reader.starts[-1]
    if "engine" not in attempt.values:
        attempt.set(engine="V1" if line.message.startswith("Engine ") else "V0")
    attempt.set(ready=True)


def _preempted(reader: Collected, _line: Line, found: re.Match[str]) -> None:
    total = int(found[1])
    load = reader.load or Load(0, 0, 0.0)
    reader.load = replace(load, preemptions=max(total, load.preemptions or 0))


def _platform(reader: Collected, line: Line, found: re.Match[str]) -> None:
    reader.attempt(line, OPENING, "platform").values.setdefault("device", found[1])


def _max_len(reader: Collected, line: Line, found: re.Match[str]) -> None:
    reader.attempt(line, OPENING, "max len").set(max_model_len=_count(found[1]))


def failed(reader: Collected, line: Line) -> None:
    found = failure(line.message)
    if found is None:
        return
    attempt = reader.starts[-1] if reader.starts else Attempt()
    if not reader.starts:
        reader.starts.append(attempt)
    elif attempt.values.get("ready") and not found.kind.of_start:
        return
    _engine(attempt, line)
    attempt.failures.append(found)
    attempt.set(**{key: value for key, value in found.values if key in _START_VALUES})
    attempt.show(line)


_START_VALUES: Final = frozenset({"max_model_len", "kv_tokens", "utilization"})


# How a message begins, and what it tells. The first that matches is taken.
SENTENCES: Final[tuple[tuple[re.Pattern[str], _Act], ...]] = tuple(
    (re.compile(pattern), act)
    for pattern, act in (
        (
            (
                r"Engine \d+: .*?Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs.*?KV cache "
                r"usage: "
                r"(?P<usage>[\d.]+)%"
            ),
            _steady,
        ),
        (
            (
                r"Avg prompt throughput: .*?Running: (?P<running>\d+) reqs.*?(?:Pending|Waiting): "
                r"(?P<waiting>\d+) reqs.*?"
                r"KV cache usage: (?P<usage>[\d.]+)%"
            ),
            _steady,
        ),
        (r"Initializing an? (?:(V0|V1) )?LLM engine \((?:v)?([^)]+)\) with config: (.*)", _config),
        (r"(?:vLLM API server version |[▀▄█ ]+version )v?(\S+)", _banner),
        (r"(?:non-default )?args: (\{.*|Namespace\(.*)", _args),
        (r"Automatically detected platform (\w+)", _platform),
        (r"Using max model len (\d+)", _max_len),
        (r"Enforce eager set, |Cudagraph is disabled under eager mode", _eager),
        (
            (
                r"To see benefits of async output processing, enable CUDA graph\. Since, enforce-eager is "
                r"enabled"
            ),
            _eager,
        ),
        (r"Skipping (?:encoder and decoder )?CUDA graph capture", _fallback),
        (
            r"(?:\[?\w*\]?\s*)?C(?:UDA|uda) ?[Gg]raph is not supported (?:on|for) .*(?:fallback to|disabl)",
            _fallback,
        ),
        (
            (
                r"(?:CUDA graph is not supported .*fallback to (?:the )?eager|Forcing enforce_eager|Data "
                r"Parallel: Forcing enforce eager"
                r"|Forcing enforce eager|(?:WideEP|DeepEP).*Disabling CUDA Graphs|.*disabling cudagraph|XPU "
                r"Graph is not supported"
                r"|FlashAttention2 does not support CUDA graphs with encoder-decoder|No valid cudagraph "
                r"capture sizes remain"
                r"|Cudagraph mode \S+ is not compatible with compilation mode .*NONE|.*Setting "
                r"cudagraph_mode "
                r"to NONE)"
            ),
            _fallback,
        ),
        (
            (
                r"CUDAGraphMode\.[A-Z_]+ is not supported with .*?setting "
                r"cudagraph_mode=(?:CUDAGraphMode\.)?([A-Z_]+)"
            ),
            _downgrade,
        ),
        (
            (
                r".{0,200}?(?:[Ss]etting|[Oo]verriding|[Ff]alling back).{0,80}cudagraph_mode (?:to|=) "
                r"?(?:CUDAGraphMode\.)?"
                r"(PIECEWISE|FULL_DECODE_ONLY|FULL_AND_PIECEWISE|FULL)\b"
            ),
            _downgrade,
        ),
        (rf"Graph capturing finished in \d+ secs?(?:, took {_N} GiB|\.|$)", _done),
        (rf"CUDA graph pool memory: {_N} GiB \(actual\), {_N} GiB \(estimated\)", _pool),
        (
            r"Capturing (?:the model for CUDA graphs|cudagraphs for decoding)",
            _sign(Sign.CAPTURING, engine="V0"),
        ),
        (r"Capturing CUDA graph(?: shapes|s \()", _sign(Sign.CAPTURING)),
        (r"Profiling CUDA graph memory: ", _sign(Sign.CAPTURING, estimated=True)),
        (rf"Estimated CUDA graph memory: {_N} GiB", _estimate),
        (r"Compiling a graph for |torch\.compile (?:takes|took) ", _sign(Sign.COMPILING)),
        (rf"(?:Loading model weights|Model loading) took {_N} (?:GB|GiB)\b", _weights),
        (
            (
                rf"Memory profiling results: total_gpu_memory={_N}GiB .*?peak_torch_memory={_N}GiB "
                rf".*?non_torch_memory={_N}GiB "
                rf"kv_cache_size={_N}GiB gpu_memory_utilization={_N}"
            ),
            _profile,
        ),
        (
            (
                rf"the current vLLM instance can use total_gpu_memory \({_N}GiB\) x gpu_memory_utilization "
                rf"\({_N}\) = {_N}GiB"
            ),
            _budget,
        ),
        (
            (
                rf"model weights take {_N}GiB; non_torch_memory takes {_N}GiB; PyTorch activation peak "
                r"memory "
                rf"takes {_N}GiB; "
                rf"the rest of the memory reserved for KV Cache is {_N}GiB"
            ),
            _split,
        ),
        (r"# (?:GPU|cuda) blocks: (\d+)", _blocks),
        (
            (
                r"GPU KV cache size: ([\d,]+) tokens(?:, Maximum concurrency for ([\d,]+) tokens per "
                r"request: "
                rf"{_N}x)?"
            ),
            _tokens,
        ),
        (rf"Available KV cache memory: {_N} GiB", _kv_gib),
        (rf"Maximum concurrency for ([\d,]+) tokens per request: {_N}x", _concurrency),
        (
            r"CUDA graph memory profiling is enabled .*?--gpu-memory-utilization=([\d.]+)",
            _inside(inside=True),
        ),
        (
            r"CUDA graph memory profiling is disabled .*?--gpu-memory-utilization from ([\d.]+)",
            _inside(inside=False),
        ),
        (
            (
                r"In v0\.19, CUDA graph memory profiling will be enabled.*?--gpu-memory-utilization from "
                r"([\d.]+)"
            ),
            _inside(inside=False),
        ),
        (
            (
                rf"Free memory on device(?: \S+)? \({_N}/{_N} GiB\) on startup\. Desired GPU memory "
                r"utilization is "
                rf"\({_N}, {_N} GiB\)\. Actual usage is (.*?)\. Replace .*Current kv cache memory in use is "
                rf"{_N} GiB"
            ),
            _breakdown,
        ),
        (rf"Initial free memory {_N} GiB, reserved {_N} GiB memory for KV Cache", _manual),
        (r"init engine \(profile, create kv cache, warmup model\) took", _initialised),
        (
            (
                r"Available routes are|Started server process|Application startup complete|Uvicorn running "
                r"on|Starting vLLM (?:API )?server"
            ),
            _serving,
        ),
        (r".{0,120}?is preempted by .*?total_cumulative_preemption_cnt=(\d+)", _preempted),
    )
)
