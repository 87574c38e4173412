"""Every flavor that is referred to exists, and none is protected by nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.flavor_impact import codes
from gpuctl.checks.flavor_impact.leftovers import is_left_behind, left_behind
from gpuctl.checks.flavor_impact.words import cohorts, concerned, get, queues, references, some
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each
from gpuctl.kueue.flavors import FINALIZER, ON_FLAVORS, REFERRED_TO, Flavor, Reliance
from gpuctl.kueue.objects import ResourceFlavor
from gpuctl.kueue.queue_facts import FLAVORS
from gpuctl.kueue.standing import age


@every(
    REFERRED_TO,
    "every ResourceFlavor that queues and cohorts refer to exists",
    given(FLAVORS, POLICY),
)
def existing_flavors(of: Reliance, flavors: Each[Ref, ResourceFlavor], policy: Policy) -> Iterator[Finding]:
    if flavors.get(of.ref) is not None:
        return
    if of.of_drill:
        now = of.scene.now
        yield from (left_behind(each, now) for each in of.queues if is_left_behind(each, now))
    elif _settled(of, policy):
        yield _missing(of, [each.metadata.name for _, each in flavors.known()])


def _settled(of: Reliance, policy: Policy) -> bool:
    """Whether who refers to it was not made just now: in a set of manifests a queue may come first."""
    made = [each.metadata.creation_timestamp for each in (*of.queues, *of.cohorts)]
    settled = policy.checks.flavor_impact.settle_seconds
    return any(at is None or age(at, of.scene.now).total_seconds() >= settled for at in made)


def _missing(of: Reliance, known: list[str]) -> Finding:
    effect = (
        f"{queues(of)} to it and admit{'s' if len(of.queues) == 1 else ''} nothing, not even by other flavors"
        f"{concerned(of)}"
        if of.queues
        else f"{cohorts(of)} quota of it that nobody can use"
    )
    return Finding(
        code=codes.MISSING,
        object=of.ref,
        message=f"ResourceFlavor {of.name} does not exist: {effect}",
        evidence=(Evidence(of.ref, "", "does not exist"), *references(of)),
        look="kubectl get resourceflavors.kueue.x-k8s.io",
        remedy=(
            f"create the flavor, or correct the name (there are: {some(sorted(known)) or 'none'}); risk: "
            "what waits is then admitted at once"
        ),
        cause=f"{of.ref} does not exist",
        severity=None if of.queues else Severity.WARNING,
    )


@every(ON_FLAVORS, "every ResourceFlavor in use is protected against deletion", given(POLICY))
def protected_flavors(flavor: Flavor, policy: Policy) -> Iterator[Finding]:
    about = flavor.written.metadata
    if about.deletion_timestamp or flavor.run_of_drill:
        return
    if not flavor.queues:
        flavor.all_queues_seen()
        if flavor.cohorts:
            yield _unprotected(flavor)
        flavor.all_cohorts_seen()
        return
    made = about.creation_timestamp  # without one it is a manifest: Kueue has not seen it yet
    settled = policy.checks.flavor_impact.settle_seconds
    if FINALIZER not in about.finalizers and made and age(made, flavor.scene.now).total_seconds() >= settled:
        yield _no_finalizer(flavor)


def _unprotected(flavor: Flavor) -> Finding:
    return Finding(
        code=codes.UNPROTECTED,
        object=flavor.ref,
        message=(
            f"Only {cohorts(flavor)} quota of ResourceFlavor {flavor.name}, and no ClusterQueue refers to "
            "it: nobody can use that quota, and a deletion of the flavor takes effect at once"
        ),
        evidence=tuple(references(flavor)),
        look="kubectl get clusterqueues.kueue.x-k8s.io,cohorts.kueue.x-k8s.io -o yaml",
        remedy=(
            "name the flavor in a ClusterQueue of the cohort (nominalQuota 0 is enough to borrow), or remove "
            "it from the Cohort; risk: none for what runs"
        ),
    )


def _no_finalizer(flavor: Flavor) -> Finding:
    return Finding(
        code=codes.NO_FINALIZER,
        object=flavor.ref,
        message=(
            f"ResourceFlavor {flavor.name} lacks the finalizer {FINALIZER}: a deletion takes effect at once, "
            f"and then {some(each.metadata.name for each in flavor.queues)} admit nothing{concerned(flavor)}"
        ),
        evidence=(
            Evidence(
                flavor.ref, ".metadata.finalizers", ", ".join(flavor.written.metadata.finalizers) or "none"
            ),
            *references(flavor),
        ),
        look=get(flavor.ref),
        remedy=(
            "see what `gpuctl check kueue-webhooks` says: the mutating webhook sets it at creation, and the "
            "manager afterwards; risk: none"
        ),
    )
