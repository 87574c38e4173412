"""No flavor is on its way out. One that is referred to stays for good, works on, and can't be kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.flavor_impact import codes
from gpuctl.checks.flavor_impact.words import concerned, counted, deletion, get, queues, references
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, State
from gpuctl.kueue.facts import kueue_managers
from gpuctl.kueue.flavors import FINALIZER, ON_FLAVORS, Flavor
from gpuctl.kueue.manager import Manager, silent_manager
from gpuctl.kueue.restarts import RESTART, deployment_in_doubt, plan_of_restart
from gpuctl.kueue.standing import span


@every(
    ON_FLAVORS,
    "no ResourceFlavor is being deleted",
    given(POLICY, Maybe(kueue_managers)),
)
def lasting_flavors(flavor: Flavor, policy: Policy, managers: State[Each[Ref, Manager]]) -> Iterator[Finding]:
    since = flavor.deleted_for()
    if since is None or flavor.run_of_drill:
        return
    if since.total_seconds() < policy.checks.flavor_impact.settle_seconds:
        yield _just_deleted(flavor, since)
    elif flavor.queues:
        yield _in_use(flavor, since)
    else:
        flavor.all_queues_seen()
        yield _stuck(flavor, since, managers)


def _just_deleted(flavor: Flavor, since: timedelta) -> Finding:
    stays = f"{queues(flavor)} to it, so it will stay" if flavor.queues else "it may be gone in a moment"
    return Finding(
        code=codes.JUST_DELETED,
        object=flavor.ref,
        message=f"ResourceFlavor {flavor.name} was deleted {span(since)} ago: {stays}",
        evidence=tuple(deletion(flavor)),
        look=get(flavor.ref),
        remedy="check again in a minute; risk: none",
    )


def _in_use(flavor: Flavor, since: timedelta) -> Finding:
    return Finding(
        code=codes.TERMINATING,
        object=flavor.ref,
        message=(
            f"ResourceFlavor {flavor.name} was deleted {span(since)} ago, and {queues(flavor)} to it: it "
            "works on, the deletion can't be undone, and the flavor goes at the edit that drops the last "
            f"reference{concerned(flavor)}"
        ),
        evidence=(*deletion(flavor), *references(flavor)),
        look=get(flavor.ref),
        remedy=(
            f"make a flavor of another name with the same spec, put it in the place of {flavor.name} in "
            f"{counted(len(flavor.queues), 'ClusterQueue')}, and let the old one go (`gpuctl explain RFI001` "
            "has the commands); never strip the finalizer; risk: none for what runs, it is not evicted"
        ),
    )


def _stuck(flavor: Flavor, since: timedelta, managers: State[Each[Ref, Manager]]) -> Finding:
    silent = silent_manager(managers)
    restarted = deployment_in_doubt(managers)
    finalizers = flavor.written.metadata.finalizers
    others = [each for each in finalizers if each != FINALIZER]
    kueues = FINALIZER in finalizers
    return Finding(
        code=codes.STUCK,
        object=flavor.ref,
        message=(
            f"ResourceFlavor {flavor.name} was deleted {span(since)} ago, no ClusterQueue refers to it, and "
            f"it stays: {_keeper(silent) if kueues else 'finalizers of others keep it: ' + ', '.join(others)}"
        ),
        evidence=(*deletion(flavor), *references(flavor), *_of_manager(silent)),
        look=get(flavor.ref),
        remedy=(
            (
                "see what `gpuctl check kueue-webhooks` says of the manager"
                f"{_restart(restarted)}; once it works, it releases the flavor; never strip the finalizer "
                "while it runs; risk: none for what runs"
            )
            if kueues
            else f"see what set {', '.join(others)} and why it does not let go; risk: none"
        ),
        cause=f"manager behind {silent.namespace}/{silent.name}" if silent and kueues else "",
        severity=None if kueues else Severity.WARNING,
        runbook=RESTART if kueues and restarted else None,
    )


def _restart(manager: Ref | None) -> str:
    return f", or restart it (`{plan_of_restart(manager)}`, 10 to 30 s without admissions)" if manager else ""


def _keeper(silent: Ref | None) -> str:
    if silent:
        return f"the manager behind {silent}, which should release it, does not answer"
    return "Kueue's manager, or its webhook vresourceflavor.kb.io, which should release it, does not work"


def _of_manager(silent: Ref | None) -> Iterator[Evidence]:
    if silent:
        yield Evidence(silent, "", "nothing answers behind it")
