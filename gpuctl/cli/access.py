"""kubectl's global flags, in one place for every verb that talks to a cluster."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gpuctl.cluster.connection import Access

_PANEL = "Cluster"
_FLAGS: dict[str, tuple[Any, Any]] = {
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


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a verb kubectl's global flags and hands them to it as its parameter `access`."""

    def wrapper(**given: Any) -> None:
        flags = {name: given.pop(name) for name in _FLAGS}
        command(**given, access=_access(flags))

    # Access is heavy to import and not needed to parse: any stand-in serves for its annotation.
    signature = inspect.signature(command, eval_str=True, locals={"Access": object})
    own = [each for each in signature.parameters.values() if each.name != "access"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _FLAGS.items()
    ]
    parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *added]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
    wrapper.__doc__ = command.__doc__
    wrapper.__name__ = command.__name__
    return wrapper


def _access(flags: dict[str, Any]) -> Access:
    from gpuctl.cli.duration import seconds
    from gpuctl.cluster.connection import Access

    timeout = flags.pop("request_timeout")
    groups = tuple(flags.pop("as_group") or ())
    return Access(**flags, as_groups=groups, request_timeout=seconds(timeout) if timeout else None)
