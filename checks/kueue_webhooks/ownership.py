"""Exactly one owner makes the certificates, for the Service that webhooks call, and writes every caBundle."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.words import get, writer
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import Deployment
from gpuctl.facts.state import Each, State, value
from gpuctl.kueue.facts import Configured, kueue_managers, manager_configurations
from gpuctl.kueue.manager import Manager, container
from gpuctl.kueue.owners import injected_names, writer_is_owner
from gpuctl.kueue.registrations import Registration
from gpuctl.kueue.releases import release_of

OWNERS_DIFFER = (
    "keep one: set internalCertManagement.enable to false where cert-manager is to do it, or take the "
    "annotation cert-manager.io/inject-ca-from away, then restart the manager; in the Helm values or the "
    "manifests, so that it stays; risk: 10 to 30 s in which what the webhooks match is refused"
)


@every(
    kueue_managers,
    "exactly one owner makes the certificates and writes every caBundle",
    given(Maybe(manager_configurations)),
)
def one_certificate_owner(
    manager: Manager, configurations: State[Each[Ref, Configured]]
) -> Iterator[Finding]:
    yield from _foreign_writers(manager)
    configured = value(configurations)[manager.ref]
    if configured.config.internal_certificates:
        yield from _two_owners(manager, configured)
        yield from _other_name(manager, configured)
        yield from _never_injected(manager, configured)
    else:
        yield from _no_owner(manager, configured)
    for deployment in manager.deployments:
        yield from _not_mounted(manager, configured, deployment)


def _foreign_writers(manager: Manager) -> Iterator[Finding]:
    for registration in manager.installation.registrations:
        if registration.written and writer_is_owner(registration) is False:
            yield Finding(
                code=codes.FOREIGN_WRITER,
                object=registration.source,
                message=(
                    f"The caBundle of {registration.source} was last written by "
                    f"{registration.written.by or 'an unnamed writer'}, not by the owner of the certificates"
                ),
                evidence=(writer(registration),),
                look=f"{get(registration.source)} --show-managed-fields",
                remedy="none as long as it verifies; the owner writes it anew at its restart; risk: none",
                cause=f"caBundles of {manager.ref.namespace}/{manager.ref.name}",
            )


def _internal(manager: Manager, configured: Configured) -> Evidence:
    enabled = str(configured.config.internal_certificates).lower()
    if configured.source is None:
        return Evidence(
            manager.deployments[0].ref, ".spec.template.spec.volumes", "no configuration: defaults"
        )
    return Evidence(configured.source, ".data", f"internalCertManagement.enable is {enabled}")


def _annotation(registration: Registration) -> Evidence:
    observed = f"cert-manager.io/inject-ca-from: {registration.injected_from or '(none)'}"
    return Evidence(registration.source, ".metadata.annotations", observed)


def _owner_object(manager: Manager, configured: Configured) -> Ref:
    return configured.source or manager.deployments[0].ref


def _two_owners(manager: Manager, configured: Configured) -> Iterator[Finding]:
    injected = [each for each in manager.installation.registrations if each.injected_from]
    if injected:
        yield Finding(
            code=codes.TWO_OWNERS,
            object=_owner_object(manager, configured),
            message=(
                f"Both Kueue and cert-manager write the caBundles of {len(injected)} objects: "
                "they overwrite each other, and calls fail whenever the wrong one was last"
            ),
            evidence=(_internal(manager, configured), *map(_annotation, injected)),
            look=get(_owner_object(manager, configured)),
            remedy=OWNERS_DIFFER,
        )


def _no_owner(manager: Manager, configured: Configured) -> Iterator[Finding]:
    bare = [each for each in manager.installation.registrations if not each.injected_from]
    if bare:
        yield Finding(
            code=codes.NO_OWNER,
            object=_owner_object(manager, configured),
            message=(
                f"Kueue's internal certificate management is off and {len(bare)} webhook registrations have "
                "no cert-manager annotation: their caBundles go stale when the certificate is renewed"
            ),
            evidence=(_internal(manager, configured), *map(_annotation, bare)),
            look=get(_owner_object(manager, configured)),
            remedy=(
                "enable internalCertManagement, or install with cert-manager, and restart the manager; "
                "risk: 10 to 30 s in which what the webhooks match is refused. If the certificates are made "
                "by hand on purpose, renew caBundle together with them"
            ),
        )


def _other_name(manager: Manager, configured: Configured) -> Iterator[Finding]:
    name = configured.config.service_name
    if name != manager.ref.name:
        yield Finding(
            code=codes.OTHER_NAME,
            object=_owner_object(manager, configured),
            message=(
                f"The manager makes its certificate for Service {name}, and webhooks call {manager.ref}: "
                "the certificate bears another name than the one that is called"
            ),
            evidence=(
                Evidence(
                    _owner_object(manager, configured),
                    ".data",
                    f"internalCertManagement.webhookServiceName {name}",
                ),
                Evidence(manager.ref, "", "called by the webhooks"),
            ),
            look=get(_owner_object(manager, configured)),
            remedy=(
                f"set webhookServiceName to {manager.ref.name} and restart the manager; "
                "risk: 10 to 30 s in which what the webhooks match is refused"
            ),
        )


def _never_injected(manager: Manager, configured: Configured) -> Iterator[Finding]:
    releases = {release_of(image) for image in manager.images}
    release = releases.pop() if len(releases) == 1 else None
    known = injected_names(configured.config.service_name, release)
    for registration in manager.installation.registrations:
        if registration.converted is None and registration.source.name not in known:
            yield Finding(
                code=codes.NEVER_INJECTED,
                object=registration.source,
                message=(
                    f"The manager writes the caBundle of {' or '.join(sorted(known))}, not of "
                    f"{registration.source}, which goes stale with the next certificate"
                ),
                evidence=(
                    writer(registration),
                    Evidence(manager.ref, "", "the manager derives names from it"),
                ),
                look=get(registration.source),
                remedy=(
                    "install a release that derives the names from its Service (v0.12.9, v0.13.5 and "
                    "v0.14 on), or without a changed name; risk: as of any upgrade"
                ),
            )


def _not_mounted(manager: Manager, configured: Configured, deployment: Deployment) -> Iterator[Finding]:
    config = configured.config
    secrets = {
        volume.name: volume.secret.secret_name
        for volume in deployment.spec.template.spec.volumes
        if volume.secret
    }
    mounts = container(deployment, manager.service).volume_mounts
    here = [
        secrets[each.name]
        for each in mounts
        if each.name in secrets and _within(config.cert_dir, each.mount_path)
    ]
    wanted = config.secret_name if config.internal_certificates else None
    if here and (wanted is None or wanted in here):
        return
    expected = f"Secret {wanted}" if wanted else "a Secret"
    found = f"Secret {', '.join(here)}" if here else "no Secret"
    yield Finding(
        code=codes.NOT_MOUNTED,
        object=deployment.ref,
        message=(
            f"{deployment.ref} reads its certificate from {config.cert_dir}, where {found} is mounted, not "
            f"{expected}: it can't serve its webhooks with the certificate that is made for it"
        ),
        evidence=(
            Evidence(deployment.ref, ".spec.template.spec.volumes", f"{found} at {config.cert_dir}"),
            _internal(manager, configured),
        ),
        look=get(deployment.ref),
        remedy=(
            "make webhook.certDir, the mount and webhookSecretName name the same Secret "
            f"(`kubectl -n {shlex.quote(deployment.metadata.namespace)} get secrets` lists them); "
            "risk: the manager restarts, 10 to 30 s in which what the webhooks match is refused"
        ),
    )


def _within(folder: str, mount: str) -> bool:
    return f"{folder.rstrip('/')}/".startswith(f"{mount.rstrip('/')}/")
