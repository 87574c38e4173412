"""Every webhook fails closed, unless its integration is off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.words import get
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, NotKnown, State, value
from gpuctl.kueue.facts import Configured, manager_configurations, webhook_registrations
from gpuctl.kueue.registrations import Hook, Registration

# Helm renders Ignore for these while their integration is off.
INTEGRATIONS: Final = {"pods": "pod", "deployments": "deployment", "statefulsets": "statefulset"}


@every(
    webhook_registrations,
    "every webhook refuses what it cannot check",
    given(Maybe(manager_configurations)),
)
def closed_webhooks(
    registration: Registration, configurations: State[Each[Ref, Configured]]
) -> Iterator[Finding]:
    loosened: list[Hook] = []
    gap: NotKnown | None = None
    for hook in registration.hooks:
        try:
            if not hook.fails_closed and not _is_off(hook, configurations):
                loosened.append(hook)
        except NotKnown as unread:
            gap = unread
    if loosened:
        yield _finding(registration, loosened)
    if gap:
        raise gap


def _is_off(hook: Hook, configurations: State[Each[Ref, Configured]]) -> bool:
    """Whether the hook is for an integration that the manager was told to leave off."""
    integrations = {INTEGRATIONS.get(resource) for rule in hook.rules for resource in rule.resources}
    if None in integrations or not integrations or hook.service is None:
        return False
    return not integrations & value(configurations)[hook.service].config.frameworks


def _finding(registration: Registration, loosened: list[Hook]) -> Finding:
    names = [hook.name for hook in loosened]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
    return Finding(
        code=codes.LOOSENED,
        object=registration.source,
        message=(
            f"{len(names)} of {len(registration.hooks)} webhooks of {registration.source} let everything "
            f"pass when Kueue does not answer ({shown}): jobs then start unsuspended and bypass quota"
        ),
        evidence=tuple(
            Evidence(registration.source, f'.webhooks[?(@.name=="{name}")].failurePolicy', "Ignore")
            for name in names[:3]
        ),
        look=get(
            registration.source,
            """jsonpath='{range .webhooks[*]}{.name} {.failurePolicy}{"\\n"}{end}'""",
        ),
        remedy=(
            "once Kueue answers again, apply its manifests or Helm release again, which restores Fail; "
            "risk: while Kueue is down, Fail refuses what the webhooks match"
        ),
    )
