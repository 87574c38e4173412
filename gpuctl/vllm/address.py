"""Where an engine's API answers in its pod."""

from __future__ import annotations

from typing import Final

from gpuctl.vllm.arguments import Settings
from gpuctl.vllm.engines import Found

_FLAGS: Final = ("port", "http-port")
_ANNOTATIONS: Final = ("prometheus.io/port", "prometheus.kserve.io/port")
_TLS: Final = ("ssl-certfile", "ssl-keyfile")
_DEFAULT, _KSERVE_DEFAULT = 8000, 8080
_HIGHEST: Final = 65535


def address(found: Found, settings: Settings) -> tuple[int, bool]:
    """The port, and whether TLS is spoken there: by its own flags, else by what the pod says of itself."""
    https = any(flag in settings.flags for flag in _TLS)
    return _flag(settings) or _declared(found) or _default(found), https


def _flag(settings: Settings) -> int | None:
    return next((port for flag in _FLAGS if (port := _port(settings.get(flag)))), None)


def _declared(found: Found) -> int | None:
    """A port of the container; of several the one for metrics, or the first that is called HTTP."""
    ports = found.container.ports
    annotations = found.pod.metadata.annotations
    told = (_port(annotations.get(name, "")) for name in _ANNOTATIONS)
    annotated = next((port for port in told if port), None)
    if len(ports) == 1:
        return ports[0].container_port
    if annotated and any(each.container_port == annotated for each in ports):
        return annotated
    return next((each.container_port for each in ports if each.name.startswith("http")), annotated)


def _default(found: Found) -> int:
    return _KSERVE_DEFAULT if "huggingfaceserver" in found.container.image else _DEFAULT


def _port(text: str) -> int | None:
    return int(text) if text.isdecimal() and 0 < int(text[:6]) <= _HIGHEST and len(text) < 6 else None  # noqa: PLR2004
