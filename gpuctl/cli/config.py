"""gpuctl config: writes, validates and shows gpuctl.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpuctl.audit.policy import Policy

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Write, validate or show gpuctl.yaml.")

_Source = Annotated[str | None, typer.Argument(metavar="[FILE|strict|default]", help="Else ./gpuctl.yaml.")]


@app.command("init")
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("gpuctl.yaml"),
) -> None:
    """Write a gpuctl.yaml that says what holds anyway."""
    from gpuctl.audit.policy import BUILT_IN
    from gpuctl.cli.border import Stop

    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(_yaml(BUILT_IN["default"]))
    except FileExistsError as error:
        raise Stop(f"{file} exists already") from error
    except OSError as error:
        raise Stop(f"cannot write {file}: {error.strerror}") from error


@app.command("validate")
def validate(source: _Source = None) -> None:
    """Say whether a policy can be used; exit 2 if not."""
    from gpuctl.cli.border import Stop
    from gpuctl.cli.policies import read_policy, unknown_names

    policy = read_policy(source)
    if wrong := unknown_names(policy):
        raise Stop("\n".join(wrong))
    typer.echo(f"valid: {len(policy.waivers)} waivers, {len(policy.accept_unknown)} accepted unknowns")


@app.command("show")
def show(source: _Source = None) -> None:
    """Show the policy that holds, with every default written out."""
    from gpuctl.cli.policies import load_policy

    typer.echo(_yaml(load_policy(source)), nl=False)


def _yaml(policy: Policy) -> str:
    import msgspec
    import yaml

    text: str = yaml.safe_dump(msgspec.to_builtins(policy), sort_keys=False)
    return text
