"""What a person lets a run do beyond reading, from the options of a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.border import Stop

if TYPE_CHECKING:
    from gpuctl.cluster.consent import Consent

_PANEL = "Proofs"
DryRunOption = Annotated[
    str | None,
    typer.Option(
        "--dry-run",
        metavar="flavor|all|none",
        help="Creations to try and not store: a ResourceFlavor (the default), a Workload and a Job too.",
        rich_help_panel=_PANEL,
    ),
]
ReadOnlyOption = Annotated[
    bool,
    typer.Option(
        "--read-only",
        help="Nothing but get, list, watch and access reviews: no dry run, no probe.",
        rich_help_panel=_PANEL,
    ),
]
# For verbs about permissions, which read none.
NeedsSecretOption = Annotated[
    bool, typer.Option("--read-webhook-secret", help="Also what check --read-webhook-secret needs.")
]
SecretOption = Annotated[
    bool,
    typer.Option(
        "--read-webhook-secret",
        help="Read the webhook's Secret too: its certificates, not its keys.",
        rich_help_panel=_PANEL,
    ),
]


def consent(dry_run: str | None, *, read_only: bool, webhook_secret: bool) -> Consent:
    """The consent that these options give. Raises Stop for a word that is none of theirs."""
    from gpuctl.cluster.consent import Consent, DryRuns

    if dry_run not in (None, *DryRuns):
        raise Stop(f"--dry-run is flavor, all or none, not {dry_run!r}")
    if read_only and dry_run not in (None, DryRuns.NONE):
        raise Stop(f"--read-only and --dry-run={dry_run} exclude each other")
    chosen = DryRuns.NONE if read_only else DryRuns(dry_run or DryRuns.FLAVOR)
    return Consent(chosen, webhook_secret)
