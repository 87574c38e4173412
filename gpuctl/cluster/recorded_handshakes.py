"""The TLS handshakes that a record holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuctl.audit.mask import masked_text
from gpuctl.cluster.archive import File
from gpuctl.cluster.capture import Capture, Missing
from gpuctl.cluster.documents import load_yaml
from gpuctl.facts.kinds import Moment
from gpuctl.facts.state import Known, Reason, State, Unknown
from gpuctl.facts.tls import Handshake, ServedPort

FOLDER: Final = "tls"
RESOURCE: Final = "services/tls"  # as capture.yaml calls a handshake that is missing


class _Shown(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    at: Moment
    server_name: str
    chain: tuple[str, ...] = ()
    error: str = ""


def path(port: ServedPort) -> str:
    """Where a record keeps a handshake."""
    return f"{FOLDER}/{port.service.namespace}.{port.service.name}.{port.port}.yaml"


def shown(files: Iterable[File], capture: Capture | None, port: ServedPort) -> State[Handshake]:
    """What a port showed when the record was made."""
    for file in files:
        if file.path.removesuffix(".gz") == path(port):
            try:
                found = msgspec.convert(load_yaml(file.text()), _Shown)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one file is one unknown answer
                return Unknown(Reason.MALFORMED, f"{file.path}: {error}", str(port))
            return Known(Handshake(found.at, found.server_name, found.chain, found.error))
    for gap in capture.missing if capture else ():
        if gap.scope == missing(port, Unknown(gap.reason)).scope:
            return Unknown(gap.reason, gap.message, str(port))
    return Unknown(Reason.NOT_ASKED, "the snapshot holds no such handshake", str(port))


def missing(port: ServedPort, gap: Unknown) -> Missing:
    """The entry of capture.yaml for a handshake that told nothing."""
    place, name = port.service.namespace, port.service.name
    return Missing(RESOURCE, gap.reason, masked_text(gap.message), namespace=place, name=name)


def write(folder: Path, port: ServedPort, handshake: Handshake) -> None:
    """Stores a handshake. Raises OSError."""
    file = folder / path(port)
    file.parent.mkdir(exist_ok=True)
    at, error = handshake.at.replace(microsecond=0), masked_text(handshake.error)
    shown = _Shown(at, handshake.server_name, handshake.chain, error)
    file.write_text(_yaml(msgspec.to_builtins(shown)), encoding="utf-8")


def _yaml(tree: Any) -> str:
    import yaml

    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120))
