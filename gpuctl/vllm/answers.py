"""What an engine says of itself when it is asked: over HTTP, and by the command line of its process.

/server_info exists in vLLM's development mode alone, so that it is mostly absent; it holds the environment,
too, of which nothing is kept.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuctl.facts.pods import Page, Run
from gpuctl.facts.state import Known, State
from gpuctl.vllm import fields
from gpuctl.vllm import version as versions
from gpuctl.vllm.launch import started_with
from gpuctl.vllm.log import Quote, Sign, Start

VERSION: Final = "/version"
METRICS: Final = "/metrics"
SERVER_INFO: Final = "/server_info?config_format=json"
PATHS: Final = (VERSION, METRICS, SERVER_INFO)  # in the order in which they are asked for
COMMAND_LINE: Final = ("cat", "/proc/1/cmdline")

_RUNNING, _WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_KV_USAGE: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_PREEMPTIONS: Final = ("vllm:num_preemptions_total", "vllm:num_preemptions")
_CACHE: Final = "vllm:cache_config_info"
_SERIES: Final = frozenset({_RUNNING, _WAITING, *_KV_USAGE, *_PREEMPTIONS, _CACHE})
_LABELS: Final = frozenset(
    {"block_size", "engine", "gpu_memory_utilization", "kv_cache_size_tokens", "num_gpu_blocks"}
)
_LINE: Final = re.compile(r"(vllm:\w+)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_CONFIG: Final = "Initializing an LLM engine () with config: "  # of such a line only known fields are kept
_USED: Final[Mapping[str, tuple[str, ...]]] = {
    "model_config": ("enforce_eager", "max_model_len", "model"),
    "compilation_config": ("cudagraph_mode", "level", "mode", "use_cudagraph"),
    "parallel_config": ("data_parallel_size", "pipeline_parallel_size", "tensor_parallel_size"),
    "cache_config": ("gpu_memory_utilization",),
    "device_config": ("device", "device_type"),
}


@dataclass(frozen=True, slots=True)
class Metered:
    """How busy an engine is now, and how large its KV cache. Of several engines in one process the sum, and
    of what is a share the largest. `kv_usage` is between 0 and 1."""

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    preemptions: int | None = None
    kv_tokens: int | None = None
    utilization: float | None = None


Answer = str | Metered | Start


@dataclass(frozen=True, slots=True)
class Answered:
    """An engine's answers. None where it has no such page, or was not asked."""

    version: State[str] | None = None
    metered: State[Metered] | None = None
    info: State[Start] | None = None
    command_line: State[tuple[str, ...]] | None = None


@dataclass(slots=True)
class _Series:
    values: dict[str, list[float]] = field(default_factory=dict)
    caches: list[Mapping[str, str]] = field(default_factory=list)

    def total(self, name: str) -> int | None:
        found = self.values.get(name)
        return int(sum(found)) if found else None

    def most(self, name: str) -> float | None:
        return max(self.values.get(name, ()), default=None)


def of_page(page: Page, text: str) -> Answer:
    """The answer that a page holds. Raises ValueError."""
    if page.path == VERSION:
        return _version(text)
    return _metered(text) if page.path == METRICS else _info(text)


def kept_of_page(page: Page, text: str) -> str:
    """What of a page is used, in the page's own form."""
    if page.path == VERSION:
        return json.dumps({"version": _version(text)})
    if page.path == METRICS:
        return "\n".join(_rendered(*each) for each in _lines(text))
    return json.dumps({"vllm_config": _kept_config(_config_of(text))})


# /version


def _version(text: str) -> str:
    version = _tree(text).get("version")
    if not isinstance(version, str) or not versions.is_written(version):
        raise ValueError("it does not say vLLM's version")
    return version[:64]


def _tree(text: str) -> Mapping[str, Any]:
    try:
        tree = json.loads(text)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error
    if not isinstance(tree, Mapping):
        raise ValueError("it is no JSON object")
    return tree


# /metrics


def _lines(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for line in text.splitlines():
        found = _LINE.fullmatch(line.strip()) if line.startswith("vllm:") else None
        if found and found[1] in _SERIES:
            number = _number(found[3])
            labels = {name: value for name, value in _LABEL.findall(found[2] or "") if name in _LABELS}
            if number is not None:
                yield found[1], labels, number


def _number(text: str | None) -> float | None:
    """None also for what is no number a person can count with."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if abs(number) < 1e18 else None  # noqa: PLR2004 - which NaN is not, either


def _rendered(name: str, labels: Mapping[str, str], number: float) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{inside}}} {number!r}"


def _metered(text: str) -> Metered:
    series = _Series()
    for name, labels, number in _lines(text):
        if name == _CACHE:
            series.caches.append(labels)
        else:
            series.values.setdefault(name, []).append(number)
    if not series.values and not series.caches:
        raise ValueError("it holds none of vLLM's series")
    return Metered(
        running=series.total(_RUNNING),
        waiting=series.total(_WAITING),
        kv_usage=next((most for name in _KV_USAGE if (most := series.most(name)) is not None), None),
        preemptions=next((total for name in _PREEMPTIONS if (total := series.total(name)) is not None), None),
        kv_tokens=_tokens(series.caches),
        utilization=max(
            (share for each in series.caches if (share := _number(each.get("gpu_memory_utilization")))),
            default=None,
        ),
    )


def _tokens(caches: list[Mapping[str, str]]) -> int | None:
    """Blocks times their size where no version says it outright. `None` is what vLLM writes where it does not
    know."""
    sizes = [_size(each) for each in caches]
    known = [each for each in sizes if each]
    return sum(known) if known and len(known) == len(sizes) else None


def _size(cache: Mapping[str, str]) -> int | None:
    told = _number(cache.get("kv_cache_size_tokens"))
    blocks, size = _number(cache.get("num_gpu_blocks")), _number(cache.get("block_size"))
    if told:
        return int(told)
    return int(blocks * size) if blocks and size else None


# /server_info


def _config_of(text: str) -> str | Mapping[str, Any]:
    config = _tree(text).get("vllm_config")
    if not isinstance(config, str | Mapping) or not config:
        raise ValueError("it does not hold vLLM's configuration")
    return config


def _kept_config(config: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
    if isinstance(config, str):
        return fields.reduced(f"{_CONFIG}{config}").removeprefix(_CONFIG)
    return {part: kept for part, names in _USED.items() if (kept := _only(config.get(part), names))}


def _only(part: object, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(part, Mapping):
        return {}
    return {name: part[name] for name in names if isinstance(part.get(name), str | int | float | bool | list)}


def _info(text: str) -> Start:
    """As a start that says how it is configured, and no more."""
    config = _config_of(text)
    told = fields.configuration(config) if isinstance(config, str) else _of_tree(config)
    if told.eager is None and not told.graph_mode:
        raise ValueError("its configuration does not tell the mode")
    said = f"enforce_eager={told.eager}" + (f", cudagraph_mode={told.graph_mode}" if told.graph_mode else "")
    return Start(
        engine="V1",
        model=told.model,
        device=told.device,
        eager_flag=told.eager,
        graph_mode=told.graph_mode,
        level=told.level,
        use_graphs=told.use_graphs,
        utilization=told.utilization,
        max_model_len=told.max_model_len,
        tensor_parallel=told.tensor_parallel,
        pipeline_parallel=told.pipeline_parallel,
        data_parallel=told.data_parallel,
        signs=frozenset({Sign.CONFIG}),
        quotes=(Quote(f"/server_info: {said}", sign=Sign.CONFIG),),
    )


def _of_tree(config: Mapping[str, Any]) -> fields.Told:
    """The configuration as JSON: the same fields, each in its part."""
    kept = {part: _only(config.get(part), names) for part, names in _USED.items()}
    model, compilation, parallel = kept["model_config"], kept["compilation_config"], kept["parallel_config"]
    eager, use = model.get("enforce_eager"), compilation.get("use_cudagraph")
    device = kept["device_config"].get("device_type") or kept["device_config"].get("device")
    share = kept["cache_config"].get("gpu_memory_utilization")
    level = compilation.get("mode", compilation.get("level"))
    return fields.Told(
        eager=eager if isinstance(eager, bool) else None,
        graph_mode=fields.graph_mode(compilation.get("cudagraph_mode")),
        level=_whole(level),
        use_graphs=use if isinstance(use, bool) else None,
        device=device if isinstance(device, str) else "",
        model=model["model"][:200] if isinstance(model.get("model"), str) else "",
        utilization=float(share) if isinstance(share, int | float) else None,
        tensor_parallel=_whole(parallel.get("tensor_parallel_size")),
        pipeline_parallel=_whole(parallel.get("pipeline_parallel_size")),
        data_parallel=_whole(parallel.get("data_parallel_size")),
        max_model_len=_whole(model.get("max_model_len")),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# The command line


def of_run(_: Run, text: str) -> tuple[str, ...]:
    """The words of a process: parted by zero bytes as the kernel has them, or as a shell writes them. Of one
    that is not vLLM's own the program alone, for a script may hold anything."""
    words = tuple(text.rstrip("\0").split("\0") if "\0" in text else shlex.split(text))
    if not any(words):
        raise ValueError("its command line is empty")
    return words if started_with(words) else words[:1]


def kept_of_run(run: Run, text: str) -> str:
    """The same words as a shell writes them."""
    return shlex.join(of_run(run, text))


def value_of(state: State[Any] | None) -> Any:
    """What was told, or None."""
    return state.value if isinstance(state, Known) else None
