"""What must hold before a flavor's loss is drilled. A canary that Kueue counts can hold up all queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.alerts import Alert, AlertState
from gpuctl.facts.fact import Alerts, Maybe, given
from gpuctl.facts.kinds import Answer, Attempt, Ref
from gpuctl.facts.metrics import Labels
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, State, value
from gpuctl.kueue.answers import Meaning, read
from gpuctl.kueue.facts import kueue_installations, kueue_managers
from gpuctl.kueue.manager import Manager, diagnoses, is_ready
from gpuctl.kueue.objects import RESOURCE_FLAVOR, ResourceFlavor
from gpuctl.kueue.proofs import DRY_RUN
from gpuctl.kueue.queue_facts import settings_as_written
from gpuctl.kueue.registrations import Installation
from gpuctl.kueue.settings import Settings
from gpuctl.runbook.flavors.canaries import CANARIES, PREFIX, Canaries, Left
from gpuctl.runbook.flavors.leftovers import LEFTOVERS
from gpuctl.runbook.guard import blocks, guard, notes
from gpuctl.runbook.target import OPTIONS

FORCE_MISSING: Final = "--force-missing"
EXPECT_ALERT: Final = "--expect-alert"
_CANARY: Final = Ref(ResourceFlavor.of, f"{PREFIX}…")


@guard("Kueue's manager works", given(kueue_managers))
def kueue_works(managers: Each[Ref, Manager]) -> Iterator[Finding]:
    """Without it nothing is noticed, and nothing can be taken away."""
    found = False
    for manager in managers:
        found = True
        trouble = next((each for each in diagnoses(manager) if not each.answered), None)
        if trouble:
            yield blocks(
                trouble.object,
                f"Kueue's manager does not answer: {trouble.trouble}",
                look="gpuctl check kueue-webhooks",
                remedy="gpuctl check kueue-webhooks says what to do",
            )
        elif not any(is_ready(pod) for pod in manager.pods):
            yield blocks(manager.ref, f"no pod of Kueue's manager behind {manager.ref} is ready")
    if not found:
        raise NotKnown(Inapplicable("no webhook leads to a manager"))


@guard("Kueue's webhooks let a ResourceFlavor be created", given(DRY_RUN, kueue_installations))
def webhooks_answer(
    answers: Each[Attempt, Answer], installations: Each[Ref, Installation]
) -> Iterator[Finding]:
    """Tried with a creation that is not stored. Without the webhook a flavor may have no finalizer."""
    own = frozenset(hook.name for _, each in installations.known() for hook in each.webhooks)
    tried = False
    for answer in answers:
        tried = True
        reading = read(answer, own)
        if reading.meaning is not Meaning.HEALTHY:
            yield blocks(
                Ref(RESOURCE_FLAVOR, "gpuctl-probe-…"),
                f"a ResourceFlavor can't be created: {reading.meaning} ({reading.says})",
                look="gpuctl check kueue-webhooks",
                remedy="gpuctl check kueue-webhooks says what to do",
            )
    if not tried:
        raise NotKnown(Inapplicable("no creation of a ResourceFlavor was tried"))


@guard("admission does not wait for pods", given(Maybe(settings_as_written)))
def admission_is_not_blocked(settings: State[Each[Ref, Settings]]) -> Iterator[Finding]:
    """With waitForPodsReady.blockAdmission a canary, which never has pods, would hold up every queue."""
    known = settings.value.known() if isinstance(settings, Known) else ()
    if any(each.blocks_admission for _, each in known):
        yield blocks(
            _CANARY,
            "Kueue is configured with waitForPodsReady.blockAdmission: a canary has no pods that could get "
            "ready, so that no Workload of any queue would be admitted while it is there",
            look="kubectl -n kueue-system get configmap kueue-manager-config -o yaml",
            remedy="none: drill in a cluster that is configured otherwise",
        )


@guard(
    "it is known whether admission waits for pods",
    given(Maybe(settings_as_written)),
    "--force-unknown-config",
)
def configuration_is_known(settings: State[Each[Ref, Settings]]) -> Iterator[Finding]:
    """What was not found is not taken for Kueue's defaults."""
    gap = _unknown(settings)
    if gap:
        yield blocks(
            _CANARY,
            f"Kueue's configuration can't be read ({gap}): with waitForPodsReady.blockAdmission in it, "
            "the canaries would hold up every queue",
            look="kubectl -n kueue-system get configmap kueue-manager-config -o yaml",
            remedy="let its ConfigMap be read: gpuctl rbac --for flavor-drill",
        )


def _unknown(settings: State[Each[Ref, Settings]]) -> str:
    if not isinstance(settings, Known):
        return str(settings)
    none = "" if settings.value.entries else "no webhook leads to a manager of Kueue's"
    return next((str(gap) for gap in settings.value.gaps()), none)


@guard("the alert that is expected can be seen to fire", given(OPTIONS, Maybe(Alerts())))
def alert_can_be_seen(options: Mapping[str, Any], alerts: State[Each[Labels, Alert]]) -> Iterator[Finding]:
    """It needs a loss that monitoring can see, somebody to ask, and silence before."""
    name = options.get("expect_alert")
    if not name:
        return
    about = {"look": "gpuctl plan flavor-drill --help"}
    if options.get("force_missing") is not True:
        yield blocks(
            _CANARY,
            f"{EXPECT_ALERT} demands {FORCE_MISSING}: otherwise no queue goes inactive, and nothing fires",
            **about,
        )
    if isinstance(alerts, Inapplicable):
        yield blocks(_CANARY, f"{EXPECT_ALERT} demands --alertmanager URL or --prometheus URL", **about)
    elif any(each.name == name and each.state is not AlertState.PENDING for each in value(alerts)):
        yield blocks(_CANARY, f"the alert {name} fires already, so that it would prove nothing", **about)


@guard("leftovers of earlier drills are known", given(LEFTOVERS))
def leftovers_are_known(leftovers: Mapping[str, Left]) -> Iterator[Finding]:
    for run, left in leftovers.items():
        yield notes(_CANARY, f"what run {run} left behind is removed first: {left}")


@guard("what the drill makes can be seen", given(CANARIES))
def canaries_can_be_seen(_: Canaries) -> Iterator[Finding]:
    """Before it is made: what could not be seen could not be taken away either."""
    yield from ()


DRILL_GUARDS: Final = (
    kueue_works,
    webhooks_answer,
    admission_is_not_blocked,
    configuration_is_known,
    alert_can_be_seen,
    leftovers_are_known,
    canaries_can_be_seen,
)
