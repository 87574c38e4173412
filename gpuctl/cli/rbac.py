"""gpuctl rbac: the roles that are enough, and no more."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuctl.cli import complete


def rbac(
    for_: Annotated[
        str,
        typer.Option(
            "--for", metavar="check|CHECK", help="All checks, or one.", autocompletion=complete.checks
        ),
    ] = "check",
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="What a tenant needs in this namespace alone.")
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            "--account",
            metavar="NAMESPACE/NAME",
            help="The service account to bind; gpuctl-system/gpuctl, or gpuctl in the tenant's namespace.",
        ),
    ] = None,
    secret: Annotated[
        bool,
        typer.Option("--read-webhook-secret", help="Also what check --read-webhook-secret needs."),
    ] = False,
) -> None:
    """Print roles of least privilege, to be applied with kubectl.

    Each rule's comment names the assertions that can't be judged without it, and those that say more with it.
    """
    from gpuctl.audit.permissions import Purpose, grants
    from gpuctl.cli.border import Stop
    from gpuctl.cli.selection import selected
    from gpuctl.report.rbac import Account, manifests

    account = account or f"{namespace or 'gpuctl-system'}/gpuctl"
    place, slash, name = account.partition("/")
    if not (place and slash and name):
        raise Stop(f"--account is NAMESPACE/NAME, not {account!r}")
    checks = selected([] if for_ == "check" else [for_]).checks
    needed = tuple(each for each in grants(checks) if secret or each.purpose is not Purpose.SECRET)
    typer.echo(manifests(needed, Account(place, name), namespace), nl=False)
