"""The permission preflight: as a table, or as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from rich.console import Console

from gpuctl.audit.access import AccessReport, Allowed, Permission
from gpuctl.report.plain import plain
from gpuctl.report.table import print_table


def access_json(report: AccessReport) -> str:
    """The preflight as JSON, ASCII only."""
    return json.dumps(msgspec.to_builtins(report), indent=2) + "\n"


def draw_access(report: AccessReport, console: Console) -> None:
    """Draws a row for each permission, and says below what follows."""
    rows = [
        (_permission(each, report.namespace), each.allowed, _needed_for(each)) for each in report.permissions
    ]
    print_table(console, ("PERMISSION", "ALLOWED", "NEEDED FOR"), rows)
    for line in _conclusion(report):
        console.print(plain(line), markup=False, highlight=False, soft_wrap=True)


def _permission(permission: Permission, tenant: str) -> str:
    group = f".{permission.group}" if permission.group else ""
    place = f" in {permission.namespace}" if permission.namespace != tenant else ""
    return f"{permission.verb} {permission.resource}{group}{place}"


def _needed_for(permission: Permission) -> str:
    if permission.assertions:
        return _by_check(permission.assertions)
    return f"can be left out; with it: {_by_check(permission.more)}"


def _by_check(names: Iterable[str]) -> str:
    """`kueue-webhooks: one-release, usable-ca-bundles`, `drain: budgets-allow, its steps`; a name without an
    assertion is about the subjects."""
    checks: dict[str, list[str]] = {}
    for name in names:
        check, _, assertion = name.partition("/")
        checks.setdefault(check, []).append(assertion or "its subjects")
    return "; ".join(f"{check}: {', '.join(assertions)}" for check, assertions in checks.items())


def _conclusion(report: AccessReport) -> Iterator[str]:
    place = f"namespace {report.namespace} of {report.cluster}" if report.namespace else report.cluster
    counts = Counter(each.allowed for each in report.permissions)
    said = ", ".join(f"{counts[answer]} {answer}" for answer in Allowed if counts[answer])
    yield f"{place}: {said or 'no permission is needed'}"
    reasons = dict.fromkeys(each.reason for each in report.permissions if each.allowed == Allowed.UNKNOWN)
    yield from (f"unknown, because {reason}" for reason in reasons)
    if counts[Allowed.NO]:
        yield "What is missing is granted by the roles that `gpuctl rbac` prints."
