"""Kueue's webhooks and their certificates: what makes `kubectl apply` fail cluster-wide when it is wrong."""

from __future__ import annotations

from gpuctl.audit.check import Check
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.addresses import one_service
from gpuctl.checks.kueue_webhooks.agreement import agreeing_ca_bundles
from gpuctl.checks.kueue_webhooks.bundles import usable_ca_bundles
from gpuctl.checks.kueue_webhooks.conversions import converted_versions
from gpuctl.checks.kueue_webhooks.creations import admitted_job, admitted_workload
from gpuctl.checks.kueue_webhooks.failure_policy import closed_webhooks
from gpuctl.checks.kueue_webhooks.handshake import shown_certificate
from gpuctl.checks.kueue_webhooks.learned import learned_of_kueue
from gpuctl.checks.kueue_webhooks.manager import answering_manager
from gpuctl.checks.kueue_webhooks.needed import NEEDED_FOR
from gpuctl.checks.kueue_webhooks.own_namespace import free_own_namespace
from gpuctl.checks.kueue_webhooks.ownership import one_certificate_owner
from gpuctl.checks.kueue_webhooks.presence import admission_webhooks, crds_with_a_manager
from gpuctl.checks.kueue_webhooks.proof import verified_certificate
from gpuctl.checks.kueue_webhooks.reads import readable_versions
from gpuctl.checks.kueue_webhooks.releases import one_release
from gpuctl.checks.kueue_webhooks.secret import secrets_certificate
from gpuctl.checks.kueue_webhooks.service import reachable_service
from gpuctl.checks.kueue_webhooks.visibility import available_visibility

CHECK = Check(
    id="kueue-webhooks",
    title="Kueue's webhooks and their certificates",
    package=__name__,
    codes=codes.ALL,
    assertions=(
        crds_with_a_manager,
        admission_webhooks,
        one_service,
        reachable_service,
        answering_manager,
        usable_ca_bundles,
        agreeing_ca_bundles,
        one_certificate_owner,
        one_release,
        converted_versions,
        closed_webhooks,
        free_own_namespace,
        available_visibility,
        readable_versions,
        verified_certificate,
        admitted_workload,
        admitted_job,
        shown_certificate,
        secrets_certificate,
    ),
    learned=learned_of_kueue,
    needed_for=NEEDED_FOR,
)
