"""Whether permissions are there: the preflight, before anything is read or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Sought:
    """A permission that is asked for, and in which namespace; empty is everywhere."""

    grant: Grant
    namespace: str = ""


class Permission(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One permission with the answer. `assertions` can't be judged without it, `more` say more with it; of a
    runbook, what can't do without it, and what comes of it where it can be left out."""

    verb: str
    resource: str
    group: str
    namespace: str = ""
    allowed: str
    reason: str = ""
    assertions: tuple[str, ...]
    more: tuple[str, ...]


class AccessReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The whole preflight. `namespace` is the tenant's, whose run stays within it; else empty."""

    api_version: str = "gpuctl.dev/v1"
    kind: str = "AccessReport"
    cluster: str
    namespace: str
    exit_code: int
    permissions: tuple[Permission, ...]


def access_report(
    sought: Iterable[Sought], may: Callable[[Rule, str], State[bool]], *, cluster: str, namespace: str = ""
) -> AccessReport:
    """Asks for each permission; within a tenant's namespace, for those that have a meaning there."""
    permissions = tuple(_permission(each, may, tenant=bool(namespace)) for each in sought)
    return AccessReport(
        cluster=cluster, namespace=namespace, exit_code=_exit(permissions), permissions=permissions
    )


def _permission(sought: Sought, may: Callable[[Rule, str], State[bool]], *, tenant: bool) -> Permission:
    grant, namespace = sought.grant, sought.namespace
    beyond = _beyond(grant) if tenant else ""
    allowed, reason = (Allowed.NOT_APPLICABLE, beyond) if beyond else _allowed(may(grant.rule, namespace))
    return Permission(
        verb=grant.rule.verb,
        resource=grant.rule.resource,
        group=grant.rule.group,
        namespace=namespace,
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
