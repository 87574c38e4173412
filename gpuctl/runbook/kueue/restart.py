"""The runbook `kueue-restart`: Kueue's manager makes and injects its certificates anew."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from gpuctl.facts.fact import NOW, Fact, Maybe, given
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import Deployment, Namespace
from gpuctl.facts.state import Each, State
from gpuctl.kueue.answers import Meaning, read
from gpuctl.kueue.facts import API_SERVICES, NAMESPACES, PODS, SLICES, kueue_installations
from gpuctl.kueue.manager import Manager
from gpuctl.kueue.proofs import DRY_RUN
from gpuctl.kueue.reach import reach
from gpuctl.runbook.gates import ALWAYS, window_not_closed
from gpuctl.runbook.kueue.remedies import remedies
from gpuctl.runbook.kueue.restart_guards import KUEUE_GUARDS, the_manager, the_secret
from gpuctl.runbook.owned import PATCH_ONLY, not_owned_elsewhere, only_printed, printed, to_be_applied
from gpuctl.runbook.rollouts import PATCHES_DEPLOYMENTS, ROLLED, Restart, Rolled, TakenOver, restarting
from gpuctl.runbook.runbook import Option, Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import OPTIONS

WITHIN: Final = 600.0

ABOUT: Final = """\
Kueue makes the certificate of its webhooks itself and writes its CA into every caBundle. Where those do not
fit any more, calls are refused all over the cluster; a restart of the manager lets it look at all of them,
renew what is due, and write every caBundle anew. This runbook restarts it as `kubectl rollout restart` does,
waits until the new pods have taken over, and proves the result by creating a ResourceFlavor that is not
stored.

While no replica is ready, what Kueue's webhooks match is refused. Running pods are untouched. A restart has
no undo. Where Helm, GitOps or an operator keeps the Deployment, it is refused unless --although-owned: who
takes the restart's mark out of the template again restarts the pods once more. --patch-only prints the patch
for the place that it belongs into.

For what a restart does not mend, the plan prints the commands."""


class Proven(Step, frozen=True, kw_only=True):
    """Tries a creation that is not stored until Kueue's webhooks answer it."""

    seconds: ClassVar[float] = 240.0
    pause: ClassVar[float] = 5.0

    @property
    def says(self) -> str:
        return "prove that Kueue's webhooks answer, by a creation that is not stored"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (DRY_RUN, kueue_installations)

    def holds(self, facts: Facts) -> bool:
        found = self._meanings(facts)
        return bool(found) and set(found) == {Meaning.HEALTHY}

    def progress(self, facts: Facts) -> str:
        return "; ".join(each.value for each in self._meanings(facts)) or "nothing was tried"

    @staticmethod
    def _meanings(facts: Facts) -> list[Meaning]:
        known = (each for _, each in facts[kueue_installations].known())
        own = frozenset(hook.name for each in known for hook in each.webhooks)
        return [read(answer, own).meaning for answer in facts[DRY_RUN]]


@given(ROLLED.now, OPTIONS)
def steps_of_a_restart(found: Rolled, options: Mapping[str, Any]) -> tuple[Step, ...]:
    if only_printed(options):
        return ()
    about: Mapping[str, Any] = {
        "namespace": found.metadata.namespace,
        "name": found.metadata.name,
        "uid": found.metadata.uid,
    }
    timeout = float(options.get("rollout_timeout") or WITHIN)
    return (
        Restart(**about, generation=found.metadata.generation),
        TakenOver(**about, timeout=timeout),
        Proven(),
    )


@given(ROLLED.now)
def what_a_restart_rests_on(found: Rolled) -> Mapping[str, str]:
    return {"generation": str(found.metadata.generation), "replicas": str(found.spec.replicas)}


@given(ROLLED.now, OPTIONS, NOW)
def the_patch_if_it_is_printed(found: Rolled, options: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    return printed(found.ref, restarting(found, now), found.metadata) if only_printed(options) else ()


@given(
    the_manager,
    ROLLED.now,
    Maybe(NAMESPACES),
    Maybe(the_secret),
    the_patch_if_it_is_printed,
)
def what_a_restart_does(
    manager: Manager,
    found: Rolled,
    namespaces: State[Each[Ref, Namespace]],
    secret: State[Ref | None],
    patch: tuple[str, ...],
) -> tuple[str, ...]:
    count = found.spec.replicas
    pods = "its one pod is" if count == 1 else f"its {count} pods are"
    hooks = manager.installation.webhooks
    refused = str(reach(hooks, namespaces)) if hooks else "nothing is called yet"
    return (
        f"restarts {found.ref}: {pods} replaced; running pods of others are untouched",
        f"while no replica is ready, 10 to 30 s with a single one: {refused}",
        "scheduling pauses until a new pod leads",
        "a restart has no undo",
        *remedies(manager, found.ref, secret),
        *patch,
    )


RUNBOOK: Final = Runbook(
    id="kueue-restart",
    title="restart Kueue's manager, so that it makes and injects its certificates anew",
    about=ABOUT,
    target="namespace/deployment",
    back="a restart has no undo: the old pods are gone, and the new ones do the same",
    guards=(*ALWAYS, window_not_closed, *KUEUE_GUARDS, not_owned_elsewhere(ROLLED.now), to_be_applied),
    steps=steps_of_a_restart,
    step_types=(Restart, TakenOver, Proven),
    kind=Deployment.of,
    options=(Option("--rollout-timeout", "seconds that the new pods may take", WITHIN), PATCH_ONLY),
    preconditions=what_a_restart_rests_on,
    effects=what_a_restart_does,
    target_uid=ROLLED.uid,
    rules=frozenset({PATCHES_DEPLOYMENTS}),
    spared=(NAMESPACES,),
    unheeded=(API_SERVICES, PODS, SLICES),
)
