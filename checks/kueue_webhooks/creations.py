"""Workloads and Jobs can be created: tried, and not stored, where the person asks for all dry runs.

Kueue's webhooks leave no mark on these kinds: that the server would create them is all that is shown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Finding
from gpuctl.checks.kueue_webhooks.proof import Around, around_the_answers, judged
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Answer, Attempt
from gpuctl.kueue.proofs import (
    JOB_DRY_RUN,
    WORKLOAD_DRY_RUN,
    a_suspended_job_to_try,
    a_workload_to_try,
)


@every(
    WORKLOAD_DRY_RUN,
    "Kueue's webhooks let a Workload be created",
    given(around_the_answers, a_workload_to_try),
    Strength.PROOF,
)
def admitted_workload(answer: Answer, around: Around, tried: Collection[Attempt]) -> Iterator[Finding]:
    yield from judged(answer, tried, around)


@every(
    JOB_DRY_RUN,
    "Kueue's webhooks let a suspended Job be created",
    given(around_the_answers, a_suspended_job_to_try),
    Strength.PROOF,
)
def admitted_job(answer: Answer, around: Around, tried: Collection[Attempt]) -> Iterator[Finding]:
    yield from judged(answer, tried, around)
