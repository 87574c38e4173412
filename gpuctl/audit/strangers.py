"""Names in a policy that no installed check bears: a misspelt waiver would never weigh, and none be told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from gpuctl.audit.check import Check
from gpuctl.audit.nearest import meant
from gpuctl.audit.policy import Policy


def strangers(policy: Policy, checks: Iterable[Check]) -> Iterator[str]:
    """A sentence for each code and assertion that there is not, with the nearest that there is."""
    installed = tuple(checks)
    codes = [code.id for check in installed for code in check.codes]
    assertions = [f"{check.id}/{each.id}" for check in installed for each in check.assertions]
    for waiver in policy.waivers:
        if waiver.code not in codes:
            yield f"waivers: no installed check has the code {waiver.code!r}{_nearest(waiver.code, codes)}"
    for code in policy.severity:
        if code not in codes:
            yield f"severity: no installed check has the code {code!r}{_nearest(code, codes)}"
    for each in policy.accept_unknown:
        if not any(fnmatchcase(assertion, each.assertion) for assertion in assertions):
            hint = _nearest(each.assertion, assertions)
            yield f"acceptUnknown: {each.assertion!r} fits no assertion of an installed check{hint}"


def _nearest(name: str, known: Iterable[str]) -> str:
    hint = meant(name, known, cutoff=0.5)
    return f"; {hint}" if hint else ""
