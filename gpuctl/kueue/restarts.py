"""Which Deployment a restart of Kueue's manager would start anew, and the guarded command for it."""

from __future__ import annotations

import shlex
from typing import Final

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, State, attempt
from gpuctl.kueue.manager import Manager, silent_manager

RESTART: Final = "kueue-restart"


def deployment_behind(service: Ref | None, managers: State[Each[Ref, Manager]]) -> Ref | None:
    """The Deployment behind the Service of a manager, if it could be read."""
    if service is None or not isinstance(managers, Known):
        return None
    known = managers.value
    found = attempt(lambda: known[service].deployments)
    return found.value[0].ref if isinstance(found, Known) and found.value else None


def deployment_in_doubt(managers: State[Each[Ref, Manager]]) -> Ref | None:
    """The Deployment of the manager that does not answer, or of the only one; None if that can't be told."""
    return deployment_behind(silent_manager(managers) or _only(managers), managers)


def _only(managers: State[Each[Ref, Manager]]) -> Ref | None:
    if not isinstance(managers, Known) or managers.value.holes:
        return None
    entries = managers.value.entries
    return next(iter(entries)) if len(entries) == 1 else None


def plan_of_restart(deployment: Ref) -> str:
    """The command that plans it."""
    return f"gpuctl plan {RESTART} {shlex.quote(deployment.namespace)}/{shlex.quote(deployment.name)}"
