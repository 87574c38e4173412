"""What DCGM exporter's series tell, where a Prometheus was named: which pod holds which slice of a GPU.

Only who is named is known: a series without a pod may be of a free slice, or of an exporter that does not map
pods at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gpuctl.facts.fact import Metrics, given
from gpuctl.facts.metrics import Labels, Points
from gpuctl.facts.state import Each

Slice = tuple[str, int | None]  # the GPU's UUID, and the number of the GPU instance; None for a whole GPU

SERIES: Final = Metrics("DCGM_FI_DEV_FB_USED", hours=1 / 720)  # some seconds: as it is now
# The names of a scrape that keeps its own labels, of one that does not, and of old exporters.
_POD: Final = (("exported_pod", "exported_namespace"), ("pod", "namespace"), ("pod_name", "pod_namespace"))


@given(SERIES)
def holders_by_exporter(series: Each[Labels, Points]) -> Mapping[Slice, tuple[str, ...]]:
    """The pods on each slice, as `namespace/name`."""
    found: dict[Slice, dict[str, None]] = {}
    for told, points in series.known():
        labels = dict(told)
        pod = next(_pods(labels), "")
        if pod and points and labels.get("UUID"):
            found.setdefault((labels["UUID"], _instance(labels)), {})[pod] = None
    return {place: tuple(sorted(pods)) for place, pods in found.items()}


def _pods(labels: Mapping[str, str]) -> Iterator[str]:
    """The pod that uses the GPU. Where labels were renamed at the scrape, `pod` is the exporter itself."""
    renamed = "exported_pod" in labels or "exported_namespace" in labels
    for pod, namespace in _POD[:1] if renamed else _POD[1:]:
        if labels.get(pod) and "dcgm-exporter" not in labels[pod]:
            yield f"{labels.get(namespace, '')}/{labels[pod]}"


def _instance(labels: Mapping[str, str]) -> int | None:
    text = labels.get("GPU_I_ID", "")
    return int(text) if text.isdecimal() and text.isascii() else None
