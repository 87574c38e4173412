"""Which assertions depend on which reads where nothing is wrong. All of them are looked at by more: to say
who is concerned, whom to restart, or what else there is of Kueue."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from gpuctl.audit.assertion import Assertion
from gpuctl.checks.kueue_webhooks.addresses import one_service
from gpuctl.checks.kueue_webhooks.agreement import agreeing_ca_bundles
from gpuctl.checks.kueue_webhooks.bundles import usable_ca_bundles
from gpuctl.checks.kueue_webhooks.conversions import converted_versions
from gpuctl.checks.kueue_webhooks.failure_policy import closed_webhooks
from gpuctl.checks.kueue_webhooks.manager import answering_manager
from gpuctl.checks.kueue_webhooks.own_namespace import free_own_namespace
from gpuctl.checks.kueue_webhooks.ownership import one_certificate_owner
from gpuctl.checks.kueue_webhooks.presence import admission_webhooks
from gpuctl.checks.kueue_webhooks.proof import verified_certificate
from gpuctl.checks.kueue_webhooks.reads import readable_versions
from gpuctl.checks.kueue_webhooks.releases import one_release
from gpuctl.checks.kueue_webhooks.secret import secrets_certificate
from gpuctl.checks.kueue_webhooks.service import reachable_service
from gpuctl.checks.kueue_webhooks.visibility import available_visibility
from gpuctl.facts.fact import Fact
from gpuctl.kueue import facts, proofs

_REGISTRATIONS: Final = (
    admission_webhooks,
    agreeing_ca_bundles,
    answering_manager,
    closed_webhooks,
    free_own_namespace,
    one_certificate_owner,
    one_release,
    one_service,
    reachable_service,
    secrets_certificate,
    usable_ca_bundles,
)
NEEDED_FOR: Final[Mapping[Fact[Any], Collection[Assertion]]] = {
    facts.MUTATING: _REGISTRATIONS,
    facts.VALIDATING: _REGISTRATIONS,
    facts.CRDS: (*_REGISTRATIONS, converted_versions, readable_versions),
    facts.API_SERVICES: (available_visibility,),
    facts.NAMESPACES: (free_own_namespace,),
    facts.SERVICES: (
        admission_webhooks,
        answering_manager,
        one_certificate_owner,
        one_release,
        reachable_service,
        secrets_certificate,
    ),
    facts.DEPLOYMENTS: (
        answering_manager,
        one_certificate_owner,
        one_release,
        reachable_service,
        secrets_certificate,
    ),
    facts.PODS: (answering_manager, one_release),
    facts.SLICES: (answering_manager,),
    facts.OLD_READS: (readable_versions,),
    facts.NEW_READS: (readable_versions,),
    facts.CONFIG_MAPS: (one_certificate_owner, reachable_service, secrets_certificate),
    proofs.DRY_RUN: (verified_certificate,),
}
