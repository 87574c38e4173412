"""How busy engines and their GPUs were in the past hour, from a Prometheus that the person has named.

dcgm-exporter tells the activity of each GPU or MIG instance, vLLM how full its KV cache is. DCGM can't see
the latter: vLLM allocates the cache in advance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpuctl.facts.fact import Metrics
from gpuctl.facts.kinds import Ref
from gpuctl.facts.metrics import Labels, Points, increase
from gpuctl.facts.state import Each, Inapplicable, State, value

ENGINE_ACTIVE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_KV: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_COUNTERS: Final = ("vllm:num_preemptions_total", "vllm:num_preemptions")
_NAMES: Final = (ENGINE_ACTIVE, *_KV, *_COUNTERS, "vllm:num_requests_running", "vllm:num_requests_waiting")
_DEVICE: Final = ("gpu", "UUID", "GPU_I_ID", "GPU_I_PROFILE", "engine")

METRICS: Final = Metrics(f'{{__name__=~"{"|".join(_NAMES)}"}}', hours=1.0)


@dataclass(frozen=True, slots=True)
class Usage:
    """One series of the past hour: of a GPU, a MIG instance or an engine. Shares are between 0 and 1."""

    metric: str
    device: Mapping[str, str]
    mean: float
    peak: float
    counted: float | None = None  # what a counter has counted


def of_engine(series: State[Each[Labels, Points]], pod: Ref, container: str) -> tuple[Usage, ...]:
    """What is known of an engine; `NotKnown` if Prometheus could not be asked. Without one it is nothing."""
    if isinstance(series, Inapplicable):
        return ()
    found = _usages(value(series), pod, container)
    return tuple(sorted(found, key=lambda each: (each.metric, sorted(each.device.items()))))


def _usages(series: Each[Labels, Points], pod: Ref, container: str) -> Iterator[Usage]:
    for key, points in series.known():
        labels = dict(key)
        own = _own(labels)
        mine = (own["namespace"], own["pod"]) == (pod.namespace, pod.name)
        if points and mine and own["container"] in ("", container):
            yield _usage(labels, points)


def _own(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Whom a series is about. What Prometheus has moved aside (exported_…) is that; what stands in its place
    is then the exporter's."""
    moved = "exported_" if "exported_pod" in labels else ""
    return {name: labels.get(f"{moved}{name}", "") for name in ("namespace", "pod", "container")}


def _usage(labels: Mapping[str, str], points: Points) -> Usage:
    metric = labels.get("__name__", "")
    values = [number for _, number in points]
    device = {name: labels[name] for name in _DEVICE if labels.get(name)}
    counted = increase(points) if metric in _COUNTERS else None
    return Usage(metric, device, sum(values) / len(values), max(values), counted)
