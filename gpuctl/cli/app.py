"""The verbs of the program."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuctl import __version__
from gpuctl.cli import books, config, mig
from gpuctl.cli.apply import apply
from gpuctl.cli.can_i import can_i
from gpuctl.cli.check import check
from gpuctl.cli.diff import diff
from gpuctl.cli.explain import explain
from gpuctl.cli.list import list_checks
from gpuctl.cli.plan import plan
from gpuctl.cli.queues import queues
from gpuctl.cli.rbac import rbac
from gpuctl.cli.runs import resume, runs, undo, unlock
from gpuctl.cli.snapshot import snapshot
from gpuctl.cli.vllm import vllm

app = typer.Typer(
    name="gpuctl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("check")(check)
app.command("snapshot")(snapshot)
app.command("queues")(queues)
app.command("vllm")(vllm)
app.command("list")(list_checks)
app.command("explain")(explain)
app.command("diff")(diff)
app.command("rbac")(rbac)
app.command("can-i")(can_i)
app.command("plan", context_settings=books.FIRST_WORD)(plan)
app.command("apply", context_settings=books.FIRST_WORD)(apply)
app.command("runs")(runs)
app.command("resume", context_settings=books.REST_LATER)(resume)
app.command("undo", context_settings=books.REST_LATER)(undo)
app.command("unlock")(unlock)
app.add_typer(config.app, name="config")
app.add_typer(mig.app, name="mig")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpuctl {__version__}")
        raise typer.Exit


@app.callback()
def gpuctl(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Checks and guarded runbooks for GPU Kubernetes clusters with NVIDIA MIG, Kueue and vLLM."""
