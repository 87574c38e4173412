"""Whether the permissions of checks are there: the preflight, before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import msgspec

from gpuctl.audit.outcome import Exit
from gpuctl.audit.permissions import Grant
from gpuctl.facts.kinds import Rule
from gpuctl.facts.state import Known, State, Unknown


class Allowed(StrEnum):
    """What the cluster said of a permission."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"  # cluster-wide, and the question is about one namespace


class Permission(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One permission with the answer. `assertions` can't be judged without it, `more` say more with it."""

    verb: str
    resource: str
    group: str
    allowed: str
    reason: str = ""
    assertions: tuple[str, ...]
    more: tuple[str, ...]


class AccessReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The whole preflight. `namespace` is empty for the whole cluster."""

    api_version: str = "gpuctl.dev/v1"
    kind: str = "AccessReport"
    cluster: str
    namespace: str
    exit_code: int
    permissions: tuple[Permission, ...]


def access_report(
    grants: Iterable[Grant], may: Callable[[Rule], State[bool]], *, cluster: str, namespace: str = ""
) -> AccessReport:
    """Asks for each permission; in a namespace, for those that have a meaning there."""
    permissions = tuple(_permission(grant, may, namespace) for grant in grants)
    return AccessReport(
        cluster=cluster, namespace=namespace, exit_code=_exit(permissions), permissions=permissions
    )


def _permission(grant: Grant, may: Callable[[Rule], State[bool]], namespace: str) -> Permission:
    beyond = _beyond(grant) if namespace else ""
    allowed, reason = (Allowed.NOT_APPLICABLE, beyond) if beyond else _allowed(may(grant.rule))
    return Permission(
        verb=grant.rule.verb,
        resource=grant.rule.resource,
        group=grant.rule.group,
        allowed=allowed.value,
        reason=reason,
        assertions=grant.assertions,
        more=grant.more,
    )


def _beyond(grant: Grant) -> str:
    """Why a tenant's run does without a permission."""
    if not grant.rule.namespaced:
        return "it is cluster-wide"
    return "" if grant.reads else "proofs are about the whole cluster"


def _allowed(answer: State[bool]) -> tuple[Allowed, str]:
    if isinstance(answer, Known):
        return (Allowed.YES if answer.value else Allowed.NO), ""
    reason = f"{answer.reason}: {answer.message}" if isinstance(answer, Unknown) else answer.why
    return Allowed.UNKNOWN, reason


def _exit(permissions: Sequence[Permission]) -> Exit:
    """A denial is certain, so it goes before what is unknown."""
    answers = {each.allowed for each in permissions}
    if Allowed.NO in answers:
        return Exit.FINDINGS
    return Exit.INCOMPLETE if Allowed.UNKNOWN in answers else Exit.CLEAN
