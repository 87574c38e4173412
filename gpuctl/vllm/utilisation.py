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
from gpuctl.facts.state import Each, Known, State

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


def of_pod(series: State[Each[Labels, Points]], pod: Ref) -> tuple[Usage, ...]:
    """What is known of a pod. The labels that Prometheus has moved aside (exported_…) are the pod's own."""
    if not isinstance(series, Known):
        return ()
    return tuple(
        sorted(_usages(series.value, pod), key=lambda each: (each.metric, sorted(each.device.items())))
    )


def _usages(series: Each[Labels, Points], pod: Ref) -> Iterator[Usage]:
    for key, points in series.known():
        labels = dict(key)
        name = labels.get("exported_pod") or labels.get("pod", "")
        namespace = labels.get("exported_namespace") or labels.get("namespace", "")
        if points and (namespace, name) == (pod.namespace, pod.name):
            yield _usage(labels, points)


def _usage(labels: Mapping[str, str], points: Points) -> Usage:
    metric = labels.get("__name__", "")
    values = [value for _, value in points]
    device = {name: labels[name] for name in _DEVICE if labels.get(name)}
    counted = increase(points) if metric in _COUNTERS else None
    return Usage(metric, device, sum(values) / len(values), max(values), counted)
