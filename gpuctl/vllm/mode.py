"""Whether an engine runs eager or with CUDA graphs, and how that is known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpuctl.vllm import version as versions
from gpuctl.vllm.log import Quote, Sign, Start
from gpuctl.vllm.version import Version

NO_GRAPHS: Final = "NONE"


class Confidence(StrEnum):
    """observed: the log shows it done. configured: the engine's own configuration line says it.
    inferred: from arguments, environment and version."""

    OBSERVED = "observed"
    CONFIGURED = "configured"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True)
class Mode:
    """`variant` is the graph mode as vLLM names it, empty where it has none or does not say."""

    graphs: bool
    confidence: Confidence
    why: str
    variant: str = ""
    quote: Quote | None = None

    def __str__(self) -> str:
        if not self.graphs:
            return "eager"
        return f"graphs ({self.variant})" if self.variant else "graphs"


def of_start(start: Start, image: Version | None = None) -> Mode | None:
    """The mode that a start in the log shows; None if it shows none."""
    return _done(start) or _configured(start, versions.parse(start.version) or image) or _hinted(start, image)


def _done(start: Start) -> Mode | None:
    variant = "" if start.graph_mode == NO_GRAPHS else start.graph_mode
    for sign in (Sign.CAPTURED, Sign.CAPTURING):
        if sign in start.signs:
            return Mode(True, Confidence.OBSERVED, sign.value, variant, _quote(start, sign))
    for sign in (Sign.FALLBACK, Sign.EAGER):
        if sign in start.signs:
            return Mode(False, Confidence.OBSERVED, sign.value, quote=_quote(start, sign))
    return None


def _quote(start: Start, sign: Sign) -> Quote | None:
    return next((quote for quote in start.quotes if quote.sign is sign), None)


def _configured(start: Start, version: Version | None) -> Mode | None:
    if Sign.CONFIG not in start.signs:
        return _by_arguments(start)
    quote = _quote(start, Sign.CONFIG)
    if start.eager_flag or _without_graphs(start, version):
        why = "enforce_eager=True" if start.eager_flag else f"no graphs configured{_on(start.device)}"
        confidence = Confidence.OBSERVED if start.complete else Confidence.CONFIGURED
        return Mode(False, confidence, why, quote=quote)
    return Mode(True, Confidence.CONFIGURED, "the configuration line", start.graph_mode, quote)


def _on(device: str) -> str:
    return f" on {device}" if device and device != "cuda" else ""


def _without_graphs(start: Start, version: Version | None) -> bool:
    """V0 looks at the flag alone; V1 at the level of compilation, then (0.10.1) at the mode of the graphs."""
    if start.engine == "V0":
        return start.device.partition(":")[0] in ("cpu", "openvino", "tpu")
    if start.graph_mode:
        return start.graph_mode == NO_GRAPHS
    if version is not None and version.before(0, 10, 1):
        return start.level not in (None, 3) or start.use_graphs is False
    return start.device.partition(":")[0] == "cpu"


def _by_arguments(start: Start) -> Mode | None:
    """The arguments that the API server prints before the engine says anything."""
    if start.eager_flag is None:
        return None
    quote = start.quotes[0] if start.quotes else None
    why = f"enforce_eager={start.eager_flag} among the arguments"
    return Mode(not start.eager_flag, Confidence.CONFIGURED, why, quote=quote)


def _hinted(start: Start, image: Version | None) -> Mode | None:
    """What can be told of a log whose telling lines are missing."""
    if Sign.COMPILING in start.signs and (image is None or image.before(0, 11, 0)):
        why = "it compiled the model, which these versions do only for graphs"
        return Mode(True, Confidence.INFERRED, why, quote=_quote(start, Sign.COMPILING))
    if start.engine == "V0" and start.gpu_blocks and Sign.SERVING in start.signs:
        return Mode(
            False, Confidence.INFERRED, "it served after its KV cache was laid out, and captured nothing"
        )
    return None


def default_variant(version: Version | None) -> str:
    """The graph mode that a version uses unless told otherwise, as far as it has a name."""
    if version is None or version.before(0, 10, 1):
        return ""
    return "PIECEWISE" if version.before(0, 11, 0) else "FULL_AND_PIECEWISE"
