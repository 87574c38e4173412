"""What else mends Kueue's webhooks, as commands for a person: gpuctl itself does none of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Known, State
from gpuctl.kueue.manager import Manager

_ONE_OWNER: Final = (
    "- exactly one owner of the certificates: set internalCertManagement.enable in the manager's "
    "configuration, or cert-manager's annotations, in the Helm values or manifests; risk: a restart"
)
_MANIFESTS: Final = (
    "- put the release's manifests again, as they were installed: `helm upgrade --reuse-values`, or "
    "`kubectl apply --server-side --force-conflicts -f` its manifests.yaml; risk: caBundles are empty "
    "until the manager has written them"
)
_BY_HAND: Final = (
    "- a caBundle by hand serves only while its owner is dead, who overwrites it, and wrong bytes refuse "
    "everything: none is printed"
)


def remedies(manager: Manager, deployment: Ref, secret: State[Ref | None]) -> tuple[str, ...]:
    """One line for each way out beyond a restart, with its risk, the mildest first."""
    return (
        "if a restart does not mend it, by hand:",
        *(_renewal(manager) or _new_authority(manager, deployment, secret)),
        _ONE_OWNER,
        _MANIFESTS,
        _BY_HAND,
        *_break_glass(manager),
    )


def _new_authority(manager: Manager, deployment: Ref, secret: State[Ref | None]) -> Iterator[str]:
    """Of the Secret only the data is cleared: its rotator fills it, and never makes it."""
    ref = secret.value if isinstance(secret, Known) else None
    name = shlex.quote(ref.name) if ref else "SECRET"
    place = shlex.quote(manager.ref.namespace)
    yield (
        "- a new CA: "
        f"`kubectl -n {place} patch secret {name} --type=merge -p '{{\"data\":null}}'`, then "
        f"`kubectl -n {shlex.quote(deployment.namespace)} rollout restart "
        f"deployment/{shlex.quote(deployment.name)}`; risk: a short outage; never delete the Secret itself, "
        "the manager does not make it"
    )


def _renewal(manager: Manager) -> tuple[str, ...]:
    named = dict.fromkeys(each.injected_from for each in manager.installation.registrations)
    return tuple(
        f"- cert-manager makes them: `cmctl renew -n {shlex.quote(place)} {shlex.quote(name)}`; risk: none "
        "for running pods"
        for place, _, name in (each.partition("/") for each in named if each)
    )


def _break_glass(manager: Manager) -> Iterator[str]:
    """Jobs then start past every quota, so it is the last one."""
    for each in manager.installation.registrations:
        if each.converted is None:
            name, kept = f"{each.source.kind.resource} {shlex.quote(each.source.name)}", each.source.name
            yield (
                f"- break the glass: `kubectl get {name} -o yaml > {shlex.quote(kept)}.yaml`, then "
                f"`sed 's/failurePolicy: Fail/failurePolicy: Ignore/' {shlex.quote(kept)}.yaml | kubectl "
                "replace -f -`; risk: Jobs bypass every quota, flavors get no finalizer; replace it by the "
                "stored one afterwards"
            )
