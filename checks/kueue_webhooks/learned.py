"""What is known of each Kueue, whatever the verdict: the subjects of the JSON report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import CustomResourceDefinition
from gpuctl.facts.state import Each, Known, NotKnown, State, attempt, value
from gpuctl.kueue import certificates, releases
from gpuctl.kueue.certificates import Certificate
from gpuctl.kueue.facts import CRDS, Configured, kueue_managers, manager_configurations, served_versions
from gpuctl.kueue.manager import Manager
from gpuctl.kueue.registrations import Installation


@given(kueue_managers, Maybe(manager_configurations), Maybe(CRDS))
def learned_of_kueue(
    managers: Each[Ref, Manager],
    configurations: State[Each[Ref, Configured]],
    crds: State[Each[Ref, CustomResourceDefinition]],
) -> Each[Ref, Mapping[str, Any]]:
    """What could not be read is null."""
    return managers.map(lambda manager: _learned(manager, configurations, crds))


def _learned(
    manager: Manager,
    configurations: State[Each[Ref, Configured]],
    crds: State[Each[Ref, CustomResourceDefinition]],
) -> Mapping[str, Any]:
    installation = manager.installation
    cas = _certificates(installation)
    return {
        "namespace": manager.ref.namespace,
        "service": manager.ref.name,
        "images": _or_none(lambda: list(manager.images)),
        "releases": _or_none(lambda: [_release(image) for image in manager.images]),
        "replicas": _or_none(lambda: sum(each.spec.replicas for each in manager.deployments)),
        "readyReplicas": _or_none(lambda: sum(each.status.ready_replicas for each in manager.deployments)),
        "certificateOwner": _or_none(lambda: _owner(installation, value(configurations)[manager.ref])),
        "caFingerprints": [each.fingerprint for each in cas],
        "caNotAfter": min((each.not_after for each in cas), default=None),
        "webhooks": len(installation.webhooks),
        "conversions": len(installation.hooks) - len(installation.webhooks),
        "servedVersions": _served(crds),
    }


def _or_none(make: Callable[[], Any]) -> Any:
    known = attempt(make)
    return known.value if isinstance(known, Known) else None


def _release(image: str) -> str | None:
    release = releases.release_of(image)
    return releases.written(release) if release else None


def _owner(installation: Installation, configured: Configured) -> str:
    injected = any(each.injected_from for each in installation.registrations)
    internal = configured.config.internal_certificates
    return {
        (True, True): "both",
        (True, False): "internal",
        (False, True): "cert-manager",
        (False, False): "none",
    }[internal, injected]


def _certificates(installation: Installation) -> list[Certificate]:
    """Each CA once, in the order of their fingerprints."""
    found: dict[str, Certificate] = {}
    for hook in installation.hooks:
        try:
            bundle = certificates.parse(hook.client.ca_bundle)
        except NotKnown:
            continue
        found.update({each.fingerprint: each for each in bundle.certificates})
    return [found[fingerprint] for fingerprint in sorted(found)]


def _served(crds: State[Each[Ref, CustomResourceDefinition]]) -> list[str] | None:
    if not isinstance(crds, Known):
        return None
    return sorted({version for each in served_versions(crds).values() for version in each})
