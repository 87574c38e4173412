"""gpuctl rbac: the roles that are enough, and no more."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuctl.cli.needs import Needs, OfARunbook, with_needs
from gpuctl.facts.home import HOME


@with_needs
def rbac(
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="What a tenant needs in this namespace alone.")
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            "--account",
            metavar="NAMESPACE/NAME",
            help=f"The service account to bind; {HOME}/gpuctl, or gpuctl in the tenant's namespace.",
        ),
    ] = None,
    *,
    needs: Needs,
) -> None:
    """Print roles of least privilege, to be applied with kubectl.

    Each rule's comment names the assertions that can't be judged without it, and those that say more with it;
    of a runbook, the guards and steps that take it. For a runbook that changes nodes, a policy holds the
    account to the fields of nodes that runbooks change.
    """
    from gpuctl.cli.border import Stop
    from gpuctl.report.rbac import Account, manifests, runbook_manifests

    account = account or f"{namespace or HOME}/gpuctl"
    place, slash, name = account.partition("/")
    if not (place and slash and name):
        raise Stop(f"--account is NAMESPACE/NAME, not {account!r}")
    found, whose = needs.found(namespace), Account(place, name)
    if isinstance(found, OfARunbook):
        text = runbook_manifests(found.book.id, found.permissions, whose, nodes=found.changes_nodes)
    else:
        text = manifests(found.grants, whose, namespace, found.only)
    typer.echo(text, nl=False)
