"""No webhook stands in the way of the pods that Kueue or the system itself is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.words import get
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import Namespace
from gpuctl.facts.selectors import is_empty
from gpuctl.facts.state import Each
from gpuctl.kueue.facts import NAMESPACES, kueue_installations
from gpuctl.kueue.reach import covers
from gpuctl.kueue.registrations import Hook, Installation, Registration

WORKS = frozenset({"pods", "deployments", "replicasets"})
SYSTEM: Final = "kube-system"


@every(
    kueue_installations,
    "no webhook applies to the pods of Kueue itself or of kube-system",
    given(NAMESPACES),
)
def free_own_namespace(installation: Installation, namespaces: Each[Ref, Namespace]) -> Iterator[Finding]:
    for name in dict.fromkeys((installation.service.namespace, SYSTEM)):
        namespace = namespaces.get(Ref(Namespace.of, name))
        if namespace is None:
            continue
        for registration in installation.registrations:
            hooks = [hook for hook in registration.hooks if _blocks(hook, namespace)]
            if hooks:
                yield _finding(registration, hooks, namespace)


def _blocks(hook: Hook, namespace: Namespace) -> bool:
    resources = {resource for rule in hook.rules for resource in rule.resources}
    return (
        hook.fails_closed and bool(resources & WORKS) and is_empty(hook.objects) and covers(hook, namespace)
    )


def _finding(registration: Registration, hooks: list[Hook], namespace: Namespace) -> Finding:
    names = ", ".join(hook.name for hook in hooks)
    name = namespace.metadata.name
    return Finding(
        code=codes.SELF_BLOCKING,
        object=registration.source,
        message=(
            f"{names} of {registration.source} also apply to namespace {name}: while Kueue does not answer, "
            "no pod can be made there, neither its own nor those that a new node needs"
        ),
        evidence=tuple(
            Evidence(
                registration.source,
                f'.webhooks[?(@.name=="{hook.name}")].namespaceSelector',
                f"selects namespace {name}",
            )
            for hook in hooks
        ),
        look=get(registration.source),
        remedy=(
            f"exclude {name} in managedJobsNamespaceSelector (Helm values or manifests) and apply them; "
            "risk: none for what runs"
        ),
        mark=name,
        cause=f"webhooks apply to namespace {name}",
    )
