"""What an engine's log tells: every start in it, what each rank's memory went to, and how busy it was.

Pure: text in, values out. Reads a log once, line by line, and keeps of each line what is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from gpuctl.vllm import fields
from gpuctl.vllm.failures import Failure, failure
from gpuctl.vllm.lines import Line, lines

LONGEST_EVIDENCE: Final = 240
LONG: Final = 1_000_000  # characters; a longer log was surely not read to its end
MOST_QUOTES: Final = 12  # of one start
_REQUEST: Final = re.compile(r' - "(?:GET|POST|HEAD) /[^"\s]* HTTP/1')


class Sign(StrEnum):
    """What a line shows about the mode. The order of strength is `mode`'s business."""

    CONFIG = "engine configuration"
    EAGER = "eager mode"
    FALLBACK = "graphs switched off"
    DOWNGRADE = "graph mode changed"
    CAPTURING = "graph capture"
    CAPTURED = "graphs captured"
    COMPILING = "compilation"
    SERVING = "serving"


@dataclass(frozen=True, slots=True)
class Quote:
    """A line of the log that shows something, shortened, without keys."""

    text: str
    at: datetime | None = None
    sign: Sign | None = None


@dataclass(frozen=True, slots=True)
class Rank:
    """The memory of one worker process, in GiB as vLLM prints it. None is what it did not say."""

    name: str
    weights: float | None = None
    activation: float | None = None
    non_torch: float | None = None
    consumed: float | None = None  # weights and non-torch together, as newer versions sum them up
    graphs: float | None = None
    graphs_estimate: float | None = None
    kv: float | None = None
    total: float | None = None
    budget: float | None = None
    free_at_start: float | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """One attempt to start the engine, as far as the log shows it."""

    version: str = ""
    engine: str = ""  # V0 or V1
    model: str = ""
    device: str = ""
    eager_flag: bool | None = None
    graph_mode: str = ""  # FULL_AND_PIECEWISE, NONE, …, after what changed it
    level: int | None = None  # of compilation, in old JSON and new reprs
    use_graphs: bool | None = None  # use_cudagraph of old versions
    utilization: float | None = None
    max_model_len: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    kv_tokens: int | None = None
    gpu_blocks: int | None = None
    concurrency: float | None = None
    estimate_inside: bool | None = None  # whether the graphs' estimate is taken out of the budget
    manual_kv: bool = False
    signs: frozenset[Sign] = frozenset()
    ranks: tuple[Rank, ...] = ()
    failure: Failure | None = None
    ready: bool = False  # it serves, or said that it is initialised
    quotes: tuple[Quote, ...] = ()
    asked: bool | None = None  # enforce_eager among the arguments the log prints
    estimated: bool = False  # graphs were captured to measure them

    @property
    def complete(self) -> bool:
        """Whether the attempt went through."""
        return self.ready and self.failure is None


@dataclass(frozen=True, slots=True)
class Load:
    """One of the periodic lines of a serving engine. `kv_usage` in percent."""

    running: int
    waiting: int
    kv_usage: float
    at: datetime | None = None
    order: str = ""
    preemptions: int | None = None


@dataclass(frozen=True, slots=True)
class EngineLog:
    """All that was read of one log. Several starts stand in it when a wrapper restarts the engine."""

    starts: tuple[Start, ...] = ()
    load: Load | None = None
    peak_kv_usage: float | None = None
    steady: bool = False  # lines of a serving engine
    first_at: datetime | None = None
    last_at: datetime | None = None
    cut: bool = False  # as long as a log is read at most: its start may go on beyond

    @property
    def start(self) -> Start | None:
        """The last complete start, else the last one."""
        complete = [each for each in self.starts if each.complete]
        return (complete or [*self.starts])[-1] if self.starts else None

    @property
    def begins_later(self) -> bool:
        """Whether the engine served already when this log begins: its start was rotated away."""
        return self.steady and not any(each.ranks or each.quotes or each.signs for each in self.starts)


def parse(text: str) -> EngineLog:
    """Reads a log, whichever way round it is."""
    reader = _Reader(steady=_REQUEST.search(text) is not None)
    for line in _in_order(text):
        reader.take(line)
    return replace(reader.result(), cut=len(text) > LONG)


def kept(text: str) -> str:
    """The recognised lines alone, with times and without keys: what a record may hold."""
    return "".join(f"{_rendered(line)}\n" for line in lines(text) if _recognised(line.message))


def _in_order(text: str) -> Iterator[Line]:
    """Some collectors hand out the newest line first."""
    found = [line for line in lines(text) if _recognised(line.message)]
    times = [line.order for line in found if line.order and line.record]
    if len(times) > 1:
        falls = sum(later < earlier for earlier, later in zip(times, times[1:], strict=False))
        rises = sum(later > earlier for earlier, later in zip(times, times[1:], strict=False))
        if falls > rises:
            found.reverse()
    return iter(found)


def _recognised(message: str) -> bool:
    return any(pattern.match(message) for pattern, _ in _PATTERNS) or failure(message) is not None


def _rendered(line: Line) -> str:
    at = f"{line.at:%Y-%m-%dT%H:%M:%SZ} " if line.at else ""
    process = f"({line.process}{f' pid={line.pid}' if line.pid else ''}) " if line.process else ""
    head = f"{line.level} {line.order} [{line.module}:0] " if line.record else ""
    return f"{at}{process}{head}{fields.reduced(line.message)}"


@dataclass(slots=True)
class _Reader:
    starts: list[_Attempt] = field(default_factory=list)
    load: Load | None = None
    peak: float | None = None
    steady: bool = False
    first: datetime | None = None
    last: datetime | None = None

    def take(self, line: Line) -> None:
        if line.at:
            self.first = self.first or line.at
            self.last = line.at
        for pattern, act in _PATTERNS:
            found = pattern.match(line.message)
            if found:
                act(self, line, found)
                return
        _failed(self, line)

    def attempt(self, line: Line, stage: int, key: str = "") -> _Attempt:
        """The attempt a line belongs to: a new one if the line begins what was begun already."""
        if not self.starts or self.starts[-1].restarted_by(line, stage, key):
            self.starts.append(_Attempt())
        current = self.starts[-1]
        current.note(line, stage, key)
        return current

    def result(self) -> EngineLog:
        starts = tuple(attempt.start() for attempt in self.starts)
        return EngineLog(starts, self.load, self.peak, self.steady, self.first, self.last)


_OPENING, _WEIGHTS, _MEMORY, _SERVING = 0, 1, 2, 3


@dataclass(slots=True)
class _Attempt:
    values: dict[str, object] = field(default_factory=dict)
    ranks: dict[str, dict[str, float]] = field(default_factory=dict)
    signs: set[Sign] = field(default_factory=set)
    quotes: list[Quote] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)  # process and key of what opened it
    stage: int = -1
    workers: set[str] = field(default_factory=set)

    def restarted_by(self, line: Line, stage: int, key: str) -> bool:
        if stage > _WEIGHTS or (self.stage < _WEIGHTS and not self.failures):
            return False
        if self.failures:
            return True
        again = (line.process, key) in self.seen
        return again and (self.stage >= _MEMORY or stage == _OPENING)

    def note(self, line: Line, stage: int, key: str) -> None:
        self.stage = max(self.stage, stage)
        if stage <= _WEIGHTS:
            self.seen.add((line.process, key))

    def set(self, **values: object) -> None:
        self.values.update({name: value for name, value in values.items() if value not in (None, "")})

    def rank(self, line: Line, **values: float | None) -> None:
        name = _rank_name(line)
        mine = self.ranks.setdefault(name, {})
        mine.update({key: value for key, value in values.items() if value is not None})

    def show(self, line: Line, sign: Sign | None = None) -> None:
        if sign:
            self.signs.add(sign)
        if len(self.quotes) < MOST_QUOTES or (sign and all(each.sign is not sign for each in self.quotes)):
            self.quotes.append(Quote(fields.reduced(line.message)[:LONGEST_EVIDENCE], line.at, sign))

    def start(self) -> Start:
        values = dict(self.values)
        for name, number in _sizes(self.workers).items():
            values.setdefault(name, number)
        worst = max(self.failures, key=lambda each: each.kind.telling, default=None)
        return Start(
            signs=frozenset(self.signs),
            ranks=tuple(Rank(name, **self.ranks[name]) for name in sorted(self.ranks)),
            failure=worst,
            quotes=tuple(self.quotes),
            **values,  # type: ignore[arg-type]
        )


def _rank_name(line: Line) -> str:
    """Which worker said it. An engine that has no workers of its own is itself the rank."""
    if line.process.startswith(("Worker", "VllmWorker", "RayWorker")):
        name = line.process.removeprefix("VllmWorkerProcess").removeprefix("RayWorkerWrapper")
        return name or f"pid={line.pid}"
    return line.process if line.process.startswith("EngineCore") and line.process != "EngineCore" else ""


_PLACE: Final = re.compile(r"(TP|PP|DP)(\d+)")
_PARALLEL: Final = {"TP": "tensor_parallel", "PP": "pipeline_parallel", "DP": "data_parallel"}


def _sizes(workers: set[str]) -> dict[str, int]:
    """How parallel an engine is, by its workers' names, where no configuration says so."""
    sizes: dict[str, int] = {}
    for worker in workers:
        for dimension, place in _PLACE.findall(worker):
            sizes[_PARALLEL[dimension]] = max(sizes.get(_PARALLEL[dimension], 0), int(place) + 1)
    unnamed = [worker for worker in workers if worker.startswith("VllmWorker")]
    return sizes or ({"tensor_parallel": len(unnamed)} if len(unnamed) > 1 else {})


_Act = Callable[[_Reader, Line, "re.Match[str]"], None]
_N: Final = r"(-?\d+(?:\.\d+)?)"


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _count(text: str | None) -> int | None:
    return int(text.replace(",", "")) if text else None


def _banner(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    reader.attempt(line, _OPENING, "banner").set(version=found[1])


def _args(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _OPENING, "args")
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


def _config(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _OPENING, "config")
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
    def act(reader: _Reader, line: Line, _found: re.Match[str]) -> None:
        stage = _MEMORY if sign in (Sign.CAPTURING, Sign.CAPTURED) else _OPENING + 1
        attempt = reader.attempt(line, max(stage, _MEMORY))
        _engine(attempt, line, engine)
        if sign is not Sign.COMPILING or Sign.COMPILING not in attempt.signs:
            attempt.show(line, None if sign in attempt.signs else sign)
        attempt.signs.add(sign)
        if graph_mode:
            attempt.set(graph_mode=graph_mode)
        if estimated:
            attempt.set(estimated=True)

    return act


def _eager(reader: _Reader, line: Line, _found: re.Match[str]) -> None:
    """Said before anything is loaded, by two processes, so it neither opens nor ends an attempt."""
    attempt = reader.attempt(line, _OPENING, f"eager {line.message[:20]}")
    attempt.show(line, Sign.EAGER)


def _fallback(reader: _Reader, line: Line, _found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY if reader.starts else _OPENING)
    attempt.show(line, Sign.FALLBACK)
    attempt.set(graph_mode="NONE")


def _downgrade(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    attempt.set(graph_mode=found[1])
    attempt.show(line, Sign.FALLBACK if found[1] == "NONE" else Sign.DOWNGRADE)


def _done(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    _engine(attempt, line)
    attempt.rank(line, graphs=_number(found[1]))
    attempt.show(line, Sign.CAPTURED)


def _pool(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    attempt.rank(line, graphs=_number(found[1]), graphs_estimate=_number(found[2]))
    attempt.show(line, Sign.CAPTURED)


def _weights(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _WEIGHTS, "weights")
    _engine(attempt, line)
    attempt.rank(line, weights=_number(found[1]))
    attempt.show(line)


def _engine(attempt: _Attempt, line: Line, engine: str = "") -> None:
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
    "EngineCore": "V1", "Worker": "V1", "VllmWorker": "V1", "VllmWorkerProcess": "V0",
}  # fmt: skip
_ENGINE_BY_MODULE: Final = {
    "gpu_executor.py": "V0", "distributed_gpu_executor.py": "V0", "executor_base.py": "V0", "engine.py": "V0",
    "llm_engine.py": "V0", "worker.py": "V0", "gpu_worker.py": "V1", "gpu_model_runner.py": "V1",
    "kv_cache_utils.py": "V1", "core.py": "V1", "loggers.py": "V1",
}  # fmt: skip


def _profile(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    """v0.6.4 alone sums up in one line."""
    attempt = reader.attempt(line, _MEMORY)
    _engine(attempt, line)
    total, peak, non_torch, kv, utilization = (float(each) for each in found.groups())
    attempt.rank(line, total=total, non_torch=non_torch, kv=kv, budget=round(total * utilization, 2))
    attempt.set(utilization=utilization)
    attempt.show(line)
    del peak  # it holds the weights, so it is no activation peak


def _budget(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    _engine(attempt, line, "V0")
    attempt.rank(line, total=_number(found[1]), budget=_number(found[3]))
    attempt.set(utilization=_number(found[2]))
    attempt.show(line)


def _split(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    weights, non_torch, activation, kv = (float(each) for each in found.groups())
    attempt.rank(line, non_torch=non_torch, activation=activation, kv=kv)
    attempt.ranks[_rank_name(line)].setdefault("weights", weights)  # the line before has more digits
    attempt.show(line)


def _blocks(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    _engine(attempt, line)
    attempt.set(gpu_blocks=_count(found[1]))
    attempt.show(line)


def _tokens(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    _engine(attempt, line, "V1")
    tokens = _count(found[1])
    least = attempt.values.get("kv_tokens")
    attempt.set(kv_tokens=min(tokens, least) if isinstance(least, int) and tokens else tokens)
    if found[2]:
        attempt.set(concurrency=_number(found[3]))
        attempt.values.setdefault("max_model_len", _count(found[2]))
    attempt.show(line)


def _kv_gib(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    _engine(attempt, line, "V1")
    attempt.rank(line, kv=_number(found[1]))
    attempt.show(line)


def _concurrency(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    _engine(attempt, line)
    least = attempt.values.get("concurrency")
    told = float(found[2])
    attempt.set(concurrency=min(told, least) if isinstance(least, float) else told)
    attempt.values.setdefault("max_model_len", _count(found[1]))
    attempt.show(line)


def _estimate(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    _engine(attempt, line)
    attempt.rank(line, graphs_estimate=_number(found[1]))
    attempt.set(estimated=True)
    attempt.show(line, Sign.CAPTURING)


def _inside(inside: bool) -> _Act:
    def act(reader: _Reader, line: Line, found: re.Match[str]) -> None:
        attempt = reader.attempt(line, _MEMORY)
        attempt.set(estimate_inside=inside)
        attempt.values.setdefault("utilization", _number(found[1]))
        attempt.show(line)

    return act


def _breakdown(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
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


def _manual(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    attempt.set(manual_kv=True)
    attempt.rank(line, free_at_start=_number(found[1]), kv=_number(found[2]))
    attempt.show(line)


def _initialised(reader: _Reader, line: Line, _found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _MEMORY)
    _engine(attempt, line)
    attempt.set(ready=True)


def _serving(reader: _Reader, line: Line, _found: re.Match[str]) -> None:
    attempt = reader.attempt(line, _SERVING)
    attempt.signs.add(Sign.SERVING)
    attempt.set(ready=True)


def _steady(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    reader.steady = True
    usage = float(found["usage"])
    load = Load(int(found["running"]), int(found["waiting"]), usage, line.at, line.order)
    reader.load = load
    reader.peak = usage if reader.peak is None else max(reader.peak, usage)
    if not reader.starts:
        reader.starts.append(_Attempt())
    attempt = reader.starts[-1]
    if "engine" not in attempt.values:
        attempt.set(engine="V1" if line.message.startswith("Engine ") else "V0")
    attempt.set(ready=True)


def _preempted(reader: _Reader, _line: Line, found: re.Match[str]) -> None:
    total = int(found[1])
    load = reader.load or Load(0, 0, 0.0)
    reader.load = replace(load, preemptions=max(total, load.preemptions or 0))


def _platform(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    reader.attempt(line, _OPENING, "platform").values.setdefault("device", found[1])


def _max_len(reader: _Reader, line: Line, found: re.Match[str]) -> None:
    reader.attempt(line, _OPENING, "max len").set(max_model_len=_count(found[1]))


def _failed(reader: _Reader, line: Line) -> None:
    found = failure(line.message)
    if found is None:
        return
    attempt = reader.starts[-1] if reader.starts else _Attempt()
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
_PATTERNS: Final[tuple[tuple[re.Pattern[str], _Act], ...]] = tuple(
    (re.compile(pattern), act)
    for pattern, act in (
        (
            r"Engine \d+: .*?Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs.*?KV cache "
            r"usage: "
            r"(?P<usage>[\d.]+)%",
            _steady,
        ),
        (
            r"Avg prompt throughput: .*?Running: (?P<running>\d+) reqs.*?(?:Pending|Waiting): "
            r"(?P<waiting>\d+) reqs.*?"
            r"KV cache usage: (?P<usage>[\d.]+)%",
            _steady,
        ),
        (r"Initializing an? (?:(V0|V1) )?LLM engine \((?:v)?([^)]+)\) with config: (.*)", _config),
        (r"(?:vLLM API server version |[▀▄█ ]+version )v?(\S+)", _banner),
        (r"(?:non-default )?args: (\{.*|Namespace\(.*)", _args),
        (r"Automatically detected platform (\w+)", _platform),
        (r"Using max model len (\d+)", _max_len),
        (r"Enforce eager set, |Cudagraph is disabled under eager mode", _eager),
        (
            r"To see benefits of async output processing, enable CUDA graph\. Since, enforce-eager is "
            r"enabled",
            _eager,
        ),
        (r"Skipping (?:encoder and decoder )?CUDA graph capture", _fallback),
        (
            r"(?:\[?\w*\]?\s*)?C(?:UDA|uda) ?[Gg]raph is not supported (?:on|for) .*(?:fallback to|disabl)",
            _fallback,
        ),
        (
            r"(?:CUDA graph is not supported .*fallback to (?:the )?eager|Forcing enforce_eager|Data "
            r"Parallel: Forcing enforce eager"
            r"|Forcing enforce eager|(?:WideEP|DeepEP).*Disabling CUDA Graphs|.*disabling cudagraph|XPU "
            r"Graph is not supported"
            r"|FlashAttention2 does not support CUDA graphs with encoder-decoder|No valid cudagraph "
            r"capture sizes remain"
            r"|Cudagraph mode \S+ is not compatible with compilation mode .*NONE|.*Setting cudagraph_mode "
            r"to NONE)",
            _fallback,
        ),
        (
            r"CUDAGraphMode\.[A-Z_]+ is not supported with .*?setting "
            r"cudagraph_mode=(?:CUDAGraphMode\.)?([A-Z_]+)",
            _downgrade,
        ),
        (
            r".{0,200}?(?:[Ss]etting|[Oo]verriding|[Ff]alling back).{0,80}cudagraph_mode (?:to|=) "
            r"?(?:CUDAGraphMode\.)?"
            r"(PIECEWISE|FULL_DECODE_ONLY|FULL_AND_PIECEWISE|FULL)\b",
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
            rf"Memory profiling results: total_gpu_memory={_N}GiB .*?peak_torch_memory={_N}GiB "
            rf".*?non_torch_memory={_N}GiB "
            rf"kv_cache_size={_N}GiB gpu_memory_utilization={_N}",
            _profile,
        ),
        (
            rf"the current vLLM instance can use total_gpu_memory \({_N}GiB\) x gpu_memory_utilization "
            rf"\({_N}\) = {_N}GiB",
            _budget,
        ),
        (
            rf"model weights take {_N}GiB; non_torch_memory takes {_N}GiB; PyTorch activation peak memory "
            rf"takes {_N}GiB; "
            rf"the rest of the memory reserved for KV Cache is {_N}GiB",
            _split,
        ),
        (r"# (?:GPU|cuda) blocks: (\d+)", _blocks),
        (
            r"GPU KV cache size: ([\d,]+) tokens(?:, Maximum concurrency for ([\d,]+) tokens per request: "
            rf"{_N}x)?",
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
            r"In v0\.19, CUDA graph memory profiling will be enabled.*?--gpu-memory-utilization from "
            r"([\d.]+)",
            _inside(inside=False),
        ),
        (
            rf"Free memory on device(?: \S+)? \({_N}/{_N} GiB\) on startup\. Desired GPU memory "
            r"utilization is "
            rf"\({_N}, {_N} GiB\)\. Actual usage is (.*?)\. Replace .*Current kv cache memory in use is "
            rf"{_N} GiB",
            _breakdown,
        ),
        (rf"Initial free memory {_N} GiB, reserved {_N} GiB memory for KV Cache", _manual),
        (r"init engine \(profile, create kv cache, warmup model\) took", _initialised),
        (
            r"Available routes are|Started server process|Application startup complete|Uvicorn running "
            r"on|Starting vLLM (?:API )?server",
            _serving,
        ),
        (r".{0,120}?is preempted by .*?total_cumulative_preemption_cnt=(\d+)", _preempted),
    )
)
