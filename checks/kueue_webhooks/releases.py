"""The manager's image, its running pods, the webhooks and the CRDs belong to one release."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.words import get
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import CustomResourceDefinition, Deployment, Pod
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown
from gpuctl.kueue import releases
from gpuctl.kueue.facts import CRDS, kueue_managers, served_versions
from gpuctl.kueue.manager import Manager, container
from gpuctl.kueue.objects import GROUP
from gpuctl.kueue.releases import Release

_WORKLOADS: Final = Ref(CustomResourceDefinition.of, f"workloads.{GROUP}")
VERSION_NAMES: Final = "jsonpath='{.spec.versions[*].name}'"


@every(
    kueue_managers,
    "manager, pods, webhooks and CRDs belong to one release of Kueue",
    given(CRDS),
)
def one_release(manager: Manager, crds: Each[Ref, CustomResourceDefinition]) -> Iterator[Finding]:
    if not manager.deployments:
        raise NotKnown(Inapplicable(f"no Deployment runs a manager behind {manager.ref}"))
    served = served_versions(Known(crds))
    seen = (*_webhooks_without_an_api(manager, served), *_against_the_image(manager, served))
    if seen:
        yield _mixed(manager, seen)
    for deployment in manager.deployments:
        yield from _old_pods(manager, deployment)
    for gap in crds.gaps():
        raise NotKnown(gap)


def _own_rules(manager: Manager) -> Iterator[tuple[str, str]]:
    """Kind and version of every rule for Kueue's own API."""
    for hook in manager.installation.webhooks:
        for rule in hook.rules:
            if GROUP in rule.api_groups:
                yield from (
                    (resource, version)
                    for resource in rule.resources
                    if "/" not in resource
                    for version in rule.api_versions
                )


def _webhooks_without_an_api(manager: Manager, served: Mapping[str, tuple[str, ...]]) -> Iterator[Evidence]:
    """Webhooks for versions that the CRDs do not have."""
    for resource, version in sorted(set(_own_rules(manager))):
        if version not in served.get(resource, (version,)) and version != "*":
            crd = Ref(CustomResourceDefinition.of, f"{resource}.{GROUP}")
            versions = ", ".join(served[resource])
            yield Evidence(crd, ".spec.versions", f"serves {versions}; its webhook is for {version}")


def _against_the_image(manager: Manager, served: Mapping[str, tuple[str, ...]]) -> Iterator[Evidence]:
    """What is registered and does not fit the release that the image's tag tells."""
    for deployment in manager.deployments:
        image = container(deployment, manager.service).image
        release = releases.release_of(image)
        misfits = tuple(_misfits(manager, release, served)) if release else ()
        if misfits:
            yield Evidence(deployment.ref, ".spec.template.spec.containers", f"image {image}")
            yield from misfits


def _misfits(manager: Manager, release: Release, served: Mapping[str, tuple[str, ...]]) -> Iterator[Evidence]:
    expected = releases.api_version(release)
    for registration in manager.installation.registrations:
        names = [hook.name for hook in registration.hooks]
        for foreign in releases.foreign_webhooks(release, names):
            yield Evidence(registration.source, f".webhooks {foreign.name}", foreign.why)
        if registration.converted and release < releases.V1BETA2:
            since = releases.written(releases.V1BETA2)
            yield Evidence(
                registration.source, ".spec.conversion", f"conversion webhooks exist since {since}"
            )
    if expected is None:
        return
    versions = {version for _, version in _own_rules(manager)}
    if versions and expected not in versions:
        found = ", ".join(sorted(versions))
        observed = f"its webhooks are for {found}, those of {releases.written(release)} for {expected}"
        yield Evidence(manager.ref, "", observed)
    if served and not any(expected in each for each in served.values()):
        crd = Ref(CustomResourceDefinition.of, f"{min(served)}.{GROUP}")
        yield Evidence(crd, ".spec.versions", f"no CRD of {GROUP} serves {expected}")


def _mixed(manager: Manager, seen: tuple[Evidence, ...]) -> Finding:
    deployment = manager.deployments[0]
    return Finding(
        code=codes.MIXED_RELEASES,
        object=deployment.ref,
        message=(
            f"{deployment.ref}, its webhooks and Kueue's CRDs are of different releases: calls the "
            "manager does not know are answered with 404, and the objects they are for are refused"
        ),
        evidence=seen,
        look=f"{get(deployment.ref, 'wide')}; {get(_WORKLOADS, VERSION_NAMES)}",
        remedy=(
            "finish the upgrade: apply CRDs, webhooks and Deployment of one release, wait for the rollout; "
            "risk: 10 to 30 s in which what the webhooks match is refused"
        ),
    )


def _old_pods(manager: Manager, deployment: Deployment) -> Iterator[Finding]:
    wanted = container(deployment, manager.service)
    namespace = shlex.quote(deployment.metadata.namespace)
    old = [
        (pod, image) for pod in manager.pods for image in _images(pod, wanted.name) if image != wanted.image
    ]
    if len(manager.deployments) == 1 and old:
        yield Finding(
            code=codes.OLD_PODS,
            object=deployment.ref,
            message=(
                f"{len(old)} of {len(manager.pods)} pods of {deployment.ref} still run another image than it "
                "asks for: the rollout has not finished, so the old release answers the webhooks"
            ),
            evidence=(
                Evidence(deployment.ref, ".spec.template.spec.containers", f"image {wanted.image}"),
                *(Evidence(pod.ref, ".spec.containers", f"image {image}") for pod, image in old),
            ),
            look=f"kubectl -n {namespace} get pods -o wide",
            remedy=(
                f"see what holds the rollout up: `kubectl -n {namespace} rollout status "
                f"deployment/{shlex.quote(deployment.metadata.name)}`; risk: none"
            ),
        )


def _images(pod: Pod, name: str) -> Iterator[str]:
    return (each.image for each in pod.spec.containers if each.name == name)
