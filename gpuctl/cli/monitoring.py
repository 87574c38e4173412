"""Which monitoring beside the cluster may be asked, in one place for every verb that does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuctl.cli.flags import Flags, with_flags

if TYPE_CHECKING:
    from gpuctl.cluster.consent import Consent
    from gpuctl.cluster.web import Server

_PANEL = "Monitoring"


@dataclass(frozen=True)
class Monitoring:
    """The servers that a person named."""

    prometheus: Server | None = None
    alertmanager: Server | None = None

    def added_to(self, given: Consent) -> Consent:
        """The consent, which these servers are part of."""
        return replace(given, prometheus=self.prometheus, alertmanager=self.alertmanager)


def _flags_of(what: str, use: str) -> Flags:
    option = f"--{what.lower()}"
    address = typer.Option(option, metavar="URL", help=f"Ask this {what} {use}.", rich_help_panel=_PANEL)
    token = typer.Option(
        f"{option}-token-file",
        metavar="FILE",
        help=f"The file with the bearer token for that {what}: read when it is sent, never shown or stored.",
        rich_help_panel=_PANEL,
    )
    ca = typer.Option(
        f"{option}-ca",
        metavar="FILE",
        help=f"The certificates to trust that {what} by, instead of those of this machine.",
        rich_help_panel=_PANEL,
    )
    name = what.lower()
    return {
        name: (Annotated[str, address], ""),
        f"{name}_token_file": (Annotated[Path | None, token], None),
        f"{name}_ca": (Annotated[Path | None, ca], None),
    }


def server(option: str, url: str, token_file: Path | None, ca: Path | None) -> Server | None:
    """The server of these options, None if none was named. Raises Stop for what can't be meant."""
    from gpuctl.cli.border import Stop
    from gpuctl.cluster.web import Server, can_keep_a_token, is_address

    files = {f"{option}-token-file": token_file, f"{option}-ca": ca}
    if not url:
        for name in (name for name, file in files.items() if file is not None):
            raise Stop(f"{name} needs {option} URL")
        return None
    if "@" in url:
        raise Stop(f"{option} takes no user or password in the address; a token: {option}-token-file FILE")
    if not is_address(url):
        raise Stop(f"{option} is an address such as https://host:9090, not {url!r}")
    for name, file in files.items():
        if file is not None and not file.is_file():
            raise Stop(f"{name}: there is no file {file}")
    if token_file is not None and not can_keep_a_token(url):
        raise Stop(f"{option}-token-file: a token is sent over https alone, or to this machine itself")
    return Server(url, token_file, ca)


def _asking_prometheus(
    *, prometheus: str, prometheus_token_file: Path | None, prometheus_ca: Path | None
) -> Monitoring:
    return Monitoring(server("--prometheus", prometheus, prometheus_token_file, prometheus_ca))


def _asking_all(
    *,
    alertmanager: str,
    alertmanager_token_file: Path | None,
    alertmanager_ca: Path | None,
    **of_prometheus: Any,
) -> Monitoring:
    return replace(
        _asking_prometheus(**of_prometheus),
        alertmanager=server("--alertmanager", alertmanager, alertmanager_token_file, alertmanager_ca),
    )


_HISTORY = _flags_of("Prometheus", "for the history of metrics")
_ALERTS = {
    **_flags_of("Prometheus", "which alerts fire"),
    **_flags_of("Alertmanager", "which alerts fire, before a Prometheus"),
}

with_prometheus = with_flags("monitoring", _HISTORY, _asking_prometheus)
"""Gives a verb the flags that name a Prometheus and hands it its parameter `monitoring`."""

with_alerts = with_flags("monitoring", _ALERTS, _asking_all)
"""Gives a verb the flags that name what knows of alerts, and hands it its parameter `monitoring`."""
