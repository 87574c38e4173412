"""Loads the policy a person names, or that of the folder they stand in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpuctl.cli.border import Stop, warn

if TYPE_CHECKING:
    from gpuctl.audit.policy import Policy


def load_policy(name: str | None) -> Policy:
    """The policy of this name or file, else of ./gpuctl.yaml, else the default. Raises Stop.

    The person is told of what it says about codes and assertions that there are not.
    """
    policy = read_policy(name)
    for stranger in unknown_names(policy):
        warn(f"policy: {stranger}")
    return policy


def read_policy(name: str | None) -> Policy:
    """The same, and nobody is told of anything. Raises Stop."""
    from gpuctl.audit.policy import PolicyError, load

    try:
        return load(name, Path.cwd())
    except PolicyError as error:
        raise Stop(str(error)) from error


def unknown_names(policy: Policy) -> tuple[str, ...]:
    """What a policy says about codes and assertions that no installed check has."""
    if not (policy.waivers or policy.severity or policy.accept_unknown):
        return ()
    from gpuctl.audit.catalogue import catalogue
    from gpuctl.audit.strangers import strangers

    return tuple(strangers(policy, catalogue().checks))
