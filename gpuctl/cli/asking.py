"""Whether vLLM's engines may be asked themselves, in one place for every verb that does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuctl.cli.flags import Flags, with_flags

if TYPE_CHECKING:
    from gpuctl.cluster.consent import Consent
    from gpuctl.facts.fact import Fact

_PANEL = "Engines"
_HTTP, _EXEC = "--vllm-http", "--vllm-exec"


@dataclass(frozen=True)
class Asking:
    """What a person lets engines be asked; nothing unless they say so."""

    http: bool
    exec: bool

    def added_to(self, given: Consent, *, read_only: bool = False) -> Consent:
        """The consent with this. Raises Stop where nothing but reading is agreed to."""
        from gpuctl.cli.border import Stop

        for option, asked in ((_HTTP, self.http), (_EXEC, self.exec)):
            if asked and read_only:
                raise Stop(f"--read-only and {option} exclude each other")
        return replace(given, vllm_http=self.http, vllm_exec=self.exec)


def not_asked(*, http: bool, exec_: bool) -> tuple[type[Fact[Any]], ...]:
    """The kinds of reads that are not made without these flags."""
    from gpuctl.facts.fact import Pages, Runs

    return tuple(kind for kind, asked in ((Pages, http), (Runs, exec_)) if not asked)


def _option(name: str, help_: str) -> Any:
    return typer.Option(name, help=help_, rich_help_panel=_PANEL)


def _asking(*, vllm_http: bool, vllm_exec: bool) -> Asking:
    return Asking(vllm_http, vllm_exec)


_FLAGS: Flags = {
    "vllm_http": (
        Annotated[
            bool,
            _option(
                _HTTP, "Ask engines for /version, /metrics, /server_info through the API server's proxy."
            ),
        ],
        False,
    ),
    "vllm_exec": (
        Annotated[bool, _option(_EXEC, "Read the command lines of engines' processes by exec.")],
        False,
    ),
}

# For verbs about permissions, which ask nobody.
NeedsHttpOption = Annotated[bool, typer.Option(_HTTP, help=f"Also what check {_HTTP} needs.")]
NeedsExecOption = Annotated[bool, typer.Option(_EXEC, help=f"Also what check {_EXEC} needs.")]

with_asking = with_flags("asking", _FLAGS, _asking)
"""Gives a verb the flags of asking engines and hands it its parameter `asking`."""
