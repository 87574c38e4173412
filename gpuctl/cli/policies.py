"""Loads the policy a person names, or that of the folder they stand in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpuctl.cli.border import Stop

if TYPE_CHECKING:
    from gpuctl.audit.policy import Policy


def load_policy(name: str | None) -> Policy:
    """The policy of this name or file, else of ./gpuctl.yaml, else the default. Raises Stop."""
    from gpuctl.audit.policy import PolicyError, load

    try:
        return load(name, Path.cwd())
    except PolicyError as error:
        raise Stop(str(error)) from error
