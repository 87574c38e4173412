"""People with the permissions of a printed role, or of one without a rule, who plan and apply runbooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpuctl.cluster.connection import Access
from gpuctl.facts.kinds import Rule

from .lenient import lenient
from .operating import Operator

RBAC: Final = "rbac.authorization.k8s.io"
MADE_FOR: Final = "made-for"


def with_access(access: Access, state: str) -> Operator:
    """Somebody who plans and applies with what they are permitted, and keeps no journal of what is done."""
    return Operator(access, state, lenient(keepRuns=0))


def bound(
    who: str, rules: Sequence[Rule], tag: str, namespace: str = "", *, group: bool = False
) -> Iterator[dict[str, Any]]:
    """A role of these rules, everywhere or in a namespace, and its binding to a user or a group. All that has
    a tag goes at once."""
    kind = "Role" if namespace else "ClusterRole"
    place = {"namespace": namespace} if namespace else {}
    about = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": who, "labels": {MADE_FOR: tag}, **place}}
    policy = [
        {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]} for each in rules
    ]
    subject = {"apiGroup": RBAC, "kind": "Group" if group else "User", "name": who}
    reference = {"apiGroup": RBAC, "kind": kind, "name": who}
    yield {**about, "kind": kind, "rules": policy}
    yield {**about, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]}


def names(text: str, rule: str) -> bool:
    """Whether a sentence names the permission."""
    verb, _, resource = rule.partition(" ")
    return verb in text and resource.partition(".")[0].partition("/")[0] in text
