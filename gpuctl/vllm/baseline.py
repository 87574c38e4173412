"""The memory of engines as it was at some time, by workload: pods come and go, what they need should stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from gpuctl.facts.fact import Argument
from gpuctl.facts.state import Known, attempt
from gpuctl.vllm.engine import Engine

API_VERSION: Final = "gpuctl.dev/v1"
KIND: Final = "MemoryBaseline"
LEAST_GIB: Final = 0.5  # and a twentieth: less is the noise of one start
LEAST_SHARE: Final = 0.05


class _Part(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    pass


class Measured(_Part, frozen=True, kw_only=True):
    """An engine's worst rank, GiB: the most of what is used, the least of what is left for the KV cache."""

    version: str = ""
    mode: str = ""
    device: float | None = None
    weights: float | None = None
    activation: float | None = None
    non_torch: float | None = None
    graphs: float | None = None
    kv: float | None = None
    kv_tokens: int | None = None
    concurrency: float | None = None


class Entry(_Part, frozen=True, kw_only=True):
    namespace: str
    workload: str
    container: str
    measured: Measured


class MemoryBaseline(_Part, frozen=True, kw_only=True):
    """The content of a baseline file. Fields that a later gpuctl adds are passed over."""

    api_version: str = API_VERSION
    kind: str = KIND
    taken_at: datetime
    source: str = ""
    engines: tuple[Entry, ...] = ()

    def of(self, engine: Engine) -> Measured | None:
        """What was measured of the engine's workload."""
        return next((each.measured for each in self.engines if _key(each) == key(engine)), None)


MEMORY_BASELINE: Argument[MemoryBaseline | None] = Argument("the memory baseline")


def key(engine: Engine) -> tuple[str, str, str]:
    """What stays when pods are replaced."""
    return engine.ref.pod.namespace, engine.workload, engine.ref.container


def _key(entry: Entry) -> tuple[str, str, str]:
    return entry.namespace, entry.workload, entry.container


def measured(engine: Engine) -> Measured | None:
    """An engine's memory, None where the log does not tell."""
    known = attempt(lambda: engine.memory)
    if not isinstance(known, Known) or not known.value or engine.start is None:
        return None
    ranks = [each.rank for each in known.value]
    mode = attempt(lambda: str(engine.mode))
    return Measured(
        version=str(engine.version or ""),
        mode=mode.value if isinstance(mode, Known) else "",
        device=_most(each.total for each in known.value),
        weights=_most(rank.weights for rank in ranks),
        activation=_most(rank.activation for rank in ranks),
        non_torch=_most(rank.non_torch for rank in ranks),
        graphs=_most(rank.graphs for rank in ranks),
        kv=_least(rank.kv for rank in ranks),
        kv_tokens=engine.start.kv_tokens,
        concurrency=engine.start.concurrency,
    )


def baseline(engines: Iterable[Engine], at: datetime, source: str) -> MemoryBaseline:
    """A baseline of these engines; of replicas the worst of each figure."""
    merged: dict[tuple[str, str, str], Measured] = {}
    for engine in engines:
        found = measured(engine)
        if found is not None:
            before = merged.get(key(engine))
            merged[key(engine)] = _worst(before, found) if before else found
    entries = (
        Entry(namespace=name[0], workload=name[1], container=name[2], measured=each)
        for name, each in sorted(merged.items())
    )
    return MemoryBaseline(taken_at=at, source=source, engines=tuple(entries))


def _worst(one: Measured, other: Measured) -> Measured:
    return msgspec.structs.replace(
        one,
        **{name: _most((getattr(one, name), getattr(other, name))) for name in _USED},
        **{name: _least((getattr(one, name), getattr(other, name))) for name in _LEFT},
    )


_USED: Final = ("weights", "activation", "non_torch", "graphs")
_LEFT: Final = ("kv", "kv_tokens", "concurrency")
_SAID: Final = {
    "weights": "weights",
    "activation": "activation peak",
    "non_torch": "memory outside PyTorch",
    "graphs": "graphs",
    "kv": "KV cache",
}


def drift(before: Measured, now: Measured) -> Iterator[str]:
    """What grew, and what became too little for it, in words."""
    for name in (*_USED, "kv"):
        was, is_ = getattr(before, name), getattr(now, name)
        if was is None or is_ is None:
            continue
        worse = was - is_ if name == "kv" else is_ - was
        if worse >= max(LEAST_GIB, LEAST_SHARE * abs(was)):
            yield f"{_SAID[name]} {was:.2f} to {is_:.2f} GiB"


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def parse(text: bytes) -> MemoryBaseline:
    """Reads a baseline file. Raises ValueError."""
    found = msgspec.json.decode(text, type=MemoryBaseline)
    if (found.api_version, found.kind) != (API_VERSION, KIND):
        raise ValueError(f"it is a {found.kind} of {found.api_version}, not a {KIND} of {API_VERSION}")
    return found
