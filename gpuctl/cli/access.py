"""kubectl's global flags, in one place for every verb that talks to a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuctl.cli.flags import Flags, with_flags

if TYPE_CHECKING:
    from gpuctl.cluster.connection import Access

_PANEL = "Cluster"
_FLAGS: Flags = {
    "kubeconfig": (
        Annotated[
            str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig.", rich_help_panel=_PANEL)
        ],
        None,
    ),
    "context": (
        Annotated[
            str | None, typer.Option("--context", help="Context of the kubeconfig.", rich_help_panel=_PANEL)
        ],
        None,
    ),
    "cluster": (
        Annotated[
            str | None, typer.Option("--cluster", help="Cluster of the kubeconfig.", rich_help_panel=_PANEL)
        ],
        None,
    ),
    "user": (
        Annotated[str | None, typer.Option("--user", help="User of the kubeconfig.", rich_help_panel=_PANEL)],
        None,
    ),
    "server": (
        Annotated[
            str | None, typer.Option("--server", help="Address of the API server.", rich_help_panel=_PANEL)
        ],
        None,
    ),
    "namespace": (
        Annotated[
            str | None,
            typer.Option("--namespace", "-n", help="Stay within this namespace.", rich_help_panel=_PANEL),
        ],
        None,
    ),
    "as_user": (
        Annotated[str | None, typer.Option("--as", help="User to impersonate.", rich_help_panel=_PANEL)],
        None,
    ),
    "as_group": (
        Annotated[
            list[str] | None,
            typer.Option("--as-group", help="Group to impersonate; repeatable.", rich_help_panel=_PANEL),
        ],
        None,
    ),
    "request_timeout": (
        Annotated[
            str | None,
            typer.Option(
                "--request-timeout", help="Time for one request, such as 10s.", rich_help_panel=_PANEL
            ),
        ],
        None,
    ),
}


def _access(*, as_group: list[str] | None, request_timeout: str | None, **flags: Any) -> Access:
    from gpuctl.cli.duration import seconds
    from gpuctl.cluster.connection import Access

    timeout = seconds(request_timeout) if request_timeout else None
    return Access(**flags, as_groups=tuple(as_group or ()), request_timeout=timeout)


with_access = with_flags("access", _FLAGS, _access)
"""Gives a verb kubectl's global flags and hands them to it as its parameter `access`."""
