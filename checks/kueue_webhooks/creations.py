"""Workloads and Jobs can be created: tried, and not stored, where the person asks for all dry runs.

Kueue's webhooks leave no mark on these kinds: that the server would create them is all that is shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.kueue_webhooks.proof import Around, judged
from gpuctl.checks.kueue_webhooks.words import Managers, Namespaces
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Answer, Ref
from gpuctl.facts.state import Each
from gpuctl.kueue.facts import NAMESPACES, kueue_installations, kueue_managers
from gpuctl.kueue.objects import Job, Workload
from gpuctl.kueue.proofs import JOB_DRY_RUN, WORKLOAD_DRY_RUN
from gpuctl.kueue.registrations import Installation

AROUND = given(kueue_installations, Maybe(NAMESPACES), Maybe(kueue_managers), POLICY)


@every(WORKLOAD_DRY_RUN, "Kueue's webhooks let a Workload be created", AROUND, Strength.PROOF)
def admitted_workload(
    answer: Answer,
    installations: Each[Ref, Installation],
    namespaces: Namespaces,
    managers: Managers,
    policy: Policy,
) -> Iterator[Finding]:
    yield from judged(answer, Workload.of, Around(installations, namespaces, managers, policy))


@every(JOB_DRY_RUN, "Kueue's webhooks let a suspended Job be created", AROUND, Strength.PROOF)
def admitted_job(
    answer: Answer,
    installations: Each[Ref, Installation],
    namespaces: Namespaces,
    managers: Managers,
    policy: Policy,
) -> Iterator[Finding]:
    yield from judged(answer, Job.of, Around(installations, namespaces, managers, policy))
