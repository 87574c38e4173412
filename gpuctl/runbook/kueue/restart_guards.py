"""What must hold before Kueue's manager is restarted: a restart that goes wrong refuses work all over the
cluster, and can't be taken back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import Maybe, Named, Within, given
from gpuctl.facts.kinds import Answer, Attempt, Ref
from gpuctl.facts.selectors import selects
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown
from gpuctl.kueue.facts import Configured, kueue_managers, manager_configurations
from gpuctl.kueue.manager import Manager
from gpuctl.kueue.objects import NameOfSecret
from gpuctl.kueue.proofs import DRY_RUN, mounted_secret
from gpuctl.kueue.restarts import RESTART
from gpuctl.runbook.drain.budgets import Budget
from gpuctl.runbook.guard import blocks, guard
from gpuctl.runbook.permitted import not_permitted
from gpuctl.runbook.rollouts import ROLLED, Rolled
from gpuctl.runbook.target import OPTIONS


@given(kueue_managers, ROLLED.now)
def the_manager(managers: Each[Ref, Manager], found: Rolled) -> Manager:
    """The manager that the Deployment runs."""
    for gap in managers.gaps():
        raise NotKnown(gap)
    every = [each for _, each in managers.known()]
    for manager in every:
        if found.ref in {each.ref for each in manager.deployments}:
            return manager
    names = ", ".join(f"{ref.namespace}/{ref.name}" for each in every for ref in _deployments(each))
    why = f"it runs no manager of Kueue's that webhooks call; {names or 'none'} does"
    raise NotKnown(Unknown(Reason.NOT_ASKED, why, str(found.ref)))


def _deployments(manager: Manager) -> list[Ref]:
    return [each.ref for each in manager.deployments]


@guard("the Deployment runs Kueue's manager", given(the_manager))
def runs_a_manager(_: Manager) -> Iterator[Finding]:
    """That it can't be told of any other says the_manager itself."""
    yield from ()


@guard("the manager runs, and no rollout of it is underway", given(ROLLED.now))
def no_rollout_underway(found: Rolled) -> Iterator[Finding]:
    """A restart of what is stopped, paused, or being replaced already would do nothing, or be two at once."""
    if not found.spec.replicas:
        yield blocks(
            found.ref,
            f"{found.ref} has 0 replicas: a restart starts nothing",
            remedy=f"kubectl -n {found.ref.namespace} scale deployment/{found.ref.name} --replicas=1",
        )
    elif found.spec.paused:
        yield blocks(
            found.ref,
            f"{found.ref} is paused: its rollout would not begin",
            remedy=f"kubectl -n {found.ref.namespace} rollout resume deployment/{found.ref.name}",
        )
    elif found.underway:
        yield blocks(
            found.ref,
            f"a rollout of {found.ref} is underway: {found.underway}",
            look=f"kubectl -n {found.ref.namespace} rollout status deployment/{found.ref.name}",
            remedy="wait for its end, or undo it",
        )


@guard("all replicas of the manager are available", given(ROLLED.now), "--although-not-ready")
def all_replicas_stand(found: Rolled) -> Iterator[Finding]:
    """One that is not ready for another reason than its certificates is not mended by a restart."""
    if found.spec.replicas and found.missing:
        yield blocks(
            found.ref,
            f"of {found.ref} only {found.missing}",
            look=f"kubectl -n {found.ref.namespace} describe deployment/{found.ref.name}",
            remedy="gpuctl check kueue-webhooks says why",
        )


@given(ROLLED.now)
def namespace_of_the_manager(found: Rolled) -> Collection[str]:
    return (found.ref.namespace,)


BUDGETS: Final = Within(Budget, namespace_of_the_manager)


@guard("no PodDisruptionBudget protects the manager now", given(BUDGETS, ROLLED.now), "--ignore-budget")
def no_budget_forbids(budgets: Each[Ref, Budget], found: Rolled) -> Iterator[Finding]:
    """A rollout does not ask budgets; whoever made one for these pods did not want them disturbed."""
    labels = found.spec.template.metadata.labels
    for budget in budgets:
        selector = budget.spec.selector
        if selector is not None and selects(selector, labels) and not budget.status.disruptions_allowed:
            yield blocks(
                budget.ref,
                f"{budget.ref} lets no pod of the manager be disturbed now: {budget.numbers}{budget.owner}",
                remedy="wait until it allows one, or ask whoever made it",
            )


# The Secret


@given(the_manager, Maybe(manager_configurations))
def the_secret(manager: Manager, configured: State[Each[Ref, Configured]]) -> Ref | None:
    """The Secret that the manager reads its certificate from."""
    return mounted_secret(manager, configured)


@given(Maybe(the_secret))
def name_of_the_secret(secret: State[Ref | None]) -> Collection[Ref]:
    return (secret.value,) if isinstance(secret, Known) and secret.value else ()


SECRET: Final = Named(NameOfSecret, name_of_the_secret)


@guard("the Secret of the certificate exists", given(Maybe(the_secret), Maybe(SECRET), ROLLED.now))
def secret_exists(
    secret: State[Ref | None], found: State[Each[Ref, NameOfSecret]], deployment: Rolled
) -> Iterator[Finding]:
    """The manager fills it, and never makes it: without it the new pods would crash again and again."""
    if not isinstance(secret, Known):
        return
    if secret.value is None:
        yield blocks(deployment.ref, f"{deployment.ref} mounts no Secret where it reads its certificate")
    elif isinstance(found, Known) and secret.value not in found.value.entries and not found.value.holes:
        yield blocks(
            secret.value,
            f"{secret.value} does not exist, and the manager does not make it: new pods would crash",
            look=f"kubectl get {secret.value.kubectl}",
            remedy="put it from the release's manifests again, empty as it is shipped",
        )


@guard(
    "it is known whether the Secret exists",
    given(Maybe(the_secret), Maybe(SECRET), ROLLED.now),
    "--although-secret-unknown",
)
def secret_is_known(
    secret: State[Ref | None], found: State[Each[Ref, NameOfSecret]], deployment: Rolled
) -> Iterator[Finding]:
    """Its metadata alone is asked for. The right to that is the right to read it, which not everybody has."""
    gap = _gap(secret, found)
    if gap:
        yield blocks(
            deployment.ref,
            f"it can't be told whether the Secret of the certificate exists: {gap}",
            look=f"kubectl -n {deployment.ref.namespace} get secrets",
            remedy="see that it is there (nothing of its data is needed), or let it be read: "
            "gpuctl rbac --for kueue-restart",
        )


def _gap(secret: State[Ref | None], found: State[Each[Ref, NameOfSecret]]) -> str:
    if not isinstance(secret, Known):
        return str(secret)
    if not isinstance(found, Known):
        return str(found)
    return next((str(gap) for gap in found.value.gaps()), "")


# Whose certificates


@guard("the manager's own certificates are renewed by a restart", given(the_manager, manager_configurations))
def one_owner(manager: Manager, configured: Each[Ref, Configured]) -> Iterator[Finding]:
    """With two owners the next write is a matter of chance; with none, a restart writes nothing."""
    config = configured[manager.ref]
    registrations = manager.installation.registrations
    injected = [each for each in registrations if each.injected_from]
    look = "gpuctl check kueue-webhooks"
    if config.config.internal_certificates and injected:
        yield blocks(
            config.source or manager.ref,
            f"both Kueue and cert-manager write the caBundles of {len(injected)} objects: the restarted "
            "manager would only begin their fight anew",
            look=look,
            remedy="leave one owner, in the Helm values or manifests (gpuctl explain kueue-webhooks)",
        )
    if not config.config.internal_certificates and len(injected) < len(registrations):
        yield blocks(
            config.source or manager.ref,
            "Kueue's own management of certificates is off, and cert-manager injects "
            f"{len(injected)} of {len(registrations)} registrations: nobody writes the others",
            look=look,
            remedy="leave one owner for all, in the Helm values or manifests",
        )


@guard(
    "it is the manager that makes the certificates",
    given(the_manager, manager_configurations),
    "--although-cert-manager",
)
def its_own_certificates(manager: Manager, configured: Each[Ref, Configured]) -> Iterator[Finding]:
    """What cert-manager makes and injects, a restart does not renew."""
    registrations = manager.installation.registrations
    if configured[manager.ref].config.internal_certificates:
        return
    if registrations and all(each.injected_from for each in registrations):
        yield blocks(
            manager.ref,
            "cert-manager makes and injects these certificates: a restart does not renew them",
            look=f"kubectl -n {manager.ref.namespace} get certificates",
            remedy="the plan names the `cmctl renew` that does",
        )


@guard("it can be tried whether Kueue's webhooks answer", given(Maybe(DRY_RUN), ROLLED.now, OPTIONS))
def proof_can_be_tried(
    tried: State[Each[Attempt, Answer]], found: Rolled, options: Mapping[str, Any]
) -> Iterator[Finding]:
    """What they answer now is what the restart is to cure. Who may not ask would never know that it did."""
    says = "what came of a restart could not be tried"
    yield from not_permitted(tried, found.ref, RESTART, options, says=says)


KUEUE_GUARDS: Final = (
    runs_a_manager,
    no_rollout_underway,
    all_replicas_stand,
    no_budget_forbids,
    secret_exists,
    secret_is_known,
    one_owner,
    its_own_certificates,
    proof_can_be_tried,
)
