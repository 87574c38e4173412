"""What an engine's log tells, as values: its starts, what each rank's memory went to, how busy it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpuctl.facts.state import Unknown
from gpuctl.vllm.failures import Failure


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
    without_end: Unknown | None = None  # why its last lines, which tell how busy it is, could not be read

    @property
    def start(self) -> Start | None:
        """The last complete start, else the last one."""
        complete = [each for each in self.starts if each.complete]
        return (complete or [*self.starts])[-1] if self.starts else None

    @property
    def begins_later(self) -> bool:
        """Whether the engine served already when this log begins: its start was rotated away."""
        return self.steady and not any(each.ranks or each.quotes or each.signs for each in self.starts)
