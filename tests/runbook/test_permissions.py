"""What is declared of runbooks says which permissions they take, and what for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from gpuctl.audit.permissions import Grant
from gpuctl.facts.fact import Maybe, Objects, given
from gpuctl.facts.kinds import Ref, Rule
from gpuctl.facts.objects import Namespace
from gpuctl.facts.state import Each, Inapplicable, Reason, State, Unknown
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.catalogue import BOOKS, runbook
from gpuctl.runbook.drain.draining import WITHOUT_BUDGETS
from gpuctl.runbook.drain.evict import DELETES
from gpuctl.runbook.drain.runbook import RUNBOOK as DRAIN
from gpuctl.runbook.gates import PODS
from gpuctl.runbook.mig.reconfigure import RUNBOOK as MIG
from gpuctl.runbook.mig.standing import what_the_label_selects
from gpuctl.runbook.permissions import EVENTS, LOCKS_AND_JOURNALS, Permissions, permissions_of
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.records import Outcome
from gpuctl.runbook.runbook import Runbook
from tests.runbook.booked import BookScene
from tests.runbook.flavors.drill_world import DrillWorld
from tests.runbook.flavors.test_drill_guards import a_hold
from tests.runbook.kueue.test_limit import BORROW, LEND, queue_world
from tests.runbook.kueue.test_restart import world as restart_world
from tests.runbook.little import Hands, Killed, dies
from tests.runbook.mig.mig_scenes import holder
from tests.runbook.mig.test_device_plugin_restart import stale
from tests.runbook.mig.test_taint_unmigged import unmigged

NODES, NAMESPACES = Objects(NodeView), Objects(Namespace)
LIST_NODES, LIST_NAMESPACES = Rule("", "nodes", "list"), Rule("", "namespaces", "list")


@given(Maybe(NODES), Maybe(NAMESPACES))
def effects(_nodes: State[Each[Ref, NodeView]], _spaces: State[Each[Ref, Namespace]]) -> tuple[str, ...]:
    return ()


def book(**changes: object) -> Runbook:
    """A runbook that reads nodes and namespaces, if it can, for its effects alone."""
    return replace(replace(DRAIN, guards=(), effects=effects, spared=()), **changes)  # type: ignore[arg-type]


def cluster(found: Permissions) -> Mapping[Rule, Grant]:
    return {grant.rule: grant for grant in found.cluster}


def test_what_is_read_is_needed_unless_it_is_said_otherwise() -> None:
    assert cluster(permissions_of(book()))[LIST_NODES].assertions == ("the plan",)


def test_what_a_plan_only_says_more_with_is_named_as_such() -> None:
    found = cluster(permissions_of(book(spared=(NODES,))))
    assert found[LIST_NODES] == Grant(LIST_NODES, (), ("the plan says more",))
    assert found[LIST_NAMESPACES].assertions == ("the plan",)


def test_what_nothing_rests_on_is_no_part_of_the_role() -> None:
    assert LIST_NODES not in cluster(permissions_of(book(unheeded=(NODES,))))


def test_what_another_read_takes_too_is_needed() -> None:
    """Pods are listed for more than the guard against blocking ones."""
    found = cluster(permissions_of(replace(DRAIN, spared=(PODS,))))
    needing = found[Rule("", "pods", "list", True)].assertions
    assert "budgets-allow" in needing
    assert "no-blocking-pod" not in needing


def test_guards_and_steps_are_named() -> None:
    found = cluster(permissions_of(DRAIN))
    assert "budgets-allow" in found[Rule("policy", "poddisruptionbudgets", "list", True)].assertions
    assert found[Rule("", "nodes", "patch")].assertions == ("its steps",)


def test_what_one_flag_takes_is_printed_with_it_alone() -> None:
    assert DELETES not in cluster(permissions_of(DRAIN))
    found = permissions_of(DRAIN, [WITHOUT_BUDGETS])
    assert cluster(found) == cluster(permissions_of(DRAIN))
    assert found.flags == {WITHOUT_BUDGETS: (Grant(DELETES, (f"its steps with {WITHOUT_BUDGETS}",)),)}


def test_each_permission_is_sought_where_it_is_needed() -> None:
    found = permissions_of(DRAIN, [WITHOUT_BUDGETS])
    places = list(found.places("ops"))
    assert [place for place, _ in places] == ["", "ops", "default"]
    everywhere = [grant.rule for grant in places[0][1]]
    assert everywhere == [*(each.rule for each in found.cluster), DELETES]
    assert places[1][1] == LOCKS_AND_JOURNALS


def test_locks_and_journals_are_those_of_the_state_namespace() -> None:
    found = permissions_of(DRAIN)
    assert found.state == LOCKS_AND_JOURNALS
    assert found.events == (EVENTS,)
    assert not [rule for rule in cluster(found) if rule.resource in ("leases", "configmaps", "events")]


def test_of_kueue_the_role_of_a_change_has_what_its_effects_tell() -> None:
    grants = [each for each in permissions_of(MIG).cluster if each.rule.group == "kueue.x-k8s.io"]
    assert {each.rule.resource for each in grants} == {
        "clusterqueues",
        "cohorts",
        "localqueues",
        "resourceflavors",
        "workloads",
    }
    assert not [each for each in grants if each.assertions]


@pytest.mark.parametrize("name", BOOKS)
def test_every_runbook_says_what_each_permission_is_for(name: str) -> None:
    found = permissions_of(runbook(name))
    for grant in (*found.cluster, *found.state, *found.events):
        assert bool(grant.assertions) != bool(grant.more)


@pytest.mark.parametrize("name", BOOKS)
def test_nothing_of_a_runbook_reads_secrets_or_writes_beyond_its_steps(name: str) -> None:
    this = runbook(name)
    written = {rule for rule in cluster(permissions_of(this)) if rule.verb not in ("get", "list")}
    looks = {rule for need in this.needs for rule in this.reads if rule.verb not in ("get", "list")}
    assert written <= {*this.rules, *looks}


# The reads of queue-limit, one by one: the others are tried on the test bed

_LIMITS = {str(grant.rule): grant for grant in permissions_of(runbook("queue-limit")).cluster}
_READS = sorted(rule for rule in runbook("queue-limit").reads if rule.verb in ("get", "list"))
_ELSEWHERE = {"configmaps", "leases"}  # read in the state namespace, too


def _kind(rule: Rule) -> str:
    return f"{rule.resource}.{rule.group}" if rule.group else rule.resource


def _limited(options: Mapping[str, str], without: str = "") -> TargetPlan:
    world = queue_world(options)
    gaps = {without: Unknown(Reason.FORBIDDEN, f"no {without}")} if without else {}
    world.reader = {**world.reader, "missing": gaps}
    return world.planned()


@pytest.mark.parametrize("kind", sorted({_kind(rule) for rule in _READS if rule.resource not in _ELSEWHERE}))
def test_a_limit_is_not_planned_or_told_of_less_without_what_its_role_reads(kind: str) -> None:
    found = [_LIMITS[str(rule)] for rule in _READS if _kind(rule) == kind and str(rule) in _LIMITS]
    plans = [(_limited(each), _limited(each, kind)) for each in (BORROW, LEND)]
    if any(grant.assertions for grant in found):
        assert all(plan.blockers for _, plan in plans)
        return
    assert not any(plan.blockers for _, plan in plans)
    says_less = any(plan.effects != whole.effects for whole, plan in plans)
    assert says_less == bool(found)


@pytest.mark.parametrize("made", [stale, unmigged])
def test_who_holds_gpus_by_claims_is_told_where_claims_can_be_read(made: Callable[[], BookScene]) -> None:
    def planned(**missing: Unknown | Inapplicable) -> TargetPlan:
        scene = made()
        claiming = holder("claims-0")
        claiming["spec"]["containers"][0].pop("resources")
        claiming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
        scene.add(claiming)
        scene.missing = missing
        return scene.plan

    unread: dict[str, Unknown | Inapplicable] = {
        "resourceclaims.resource.k8s.io": Unknown(Reason.FORBIDDEN, "")
    }
    whole, less = planned(), planned(**unread)
    assert whole.blockers == less.blockers == ()
    assert any("can't be told who holds" in each for each in less.effects)
    assert not any("can't be told" in each for each in whole.effects)
    book = made().book
    assert book is not None
    (grant,) = [each for each in permissions_of(book).cluster if each.rule.resource == "resourceclaims"]
    assert not grant.assertions


@pytest.mark.parametrize("made", [stale, unmigged])
def test_what_the_label_asks_is_not_known_where_the_cluster_policy_is_not(
    made: Callable[[], BookScene],
) -> None:
    """It may name another ConfigMap than the one that is found."""
    scene = made()
    scene.missing = {"clusterpolicies.nvidia.com": Unknown(Reason.FORBIDDEN, "no policies")}
    told = scene.look([what_the_label_selects]).state(what_the_label_selects)
    assert isinstance(told, Unknown)
    assert "no policies" in str(told)


# What a drill writes: more than one run does


def _writes(world: DrillWorld) -> set[Rule]:
    calls = [
        call for call in world.writer.calls if call.ref.kind.plural not in ("leases", "configmaps", "events")
    ]
    return {
        Rule(call.ref.kind.group, call.ref.kind.plural, call.verb, call.ref.kind.namespaced) for call in calls
    }


def _down_and_undone() -> DrillWorld:
    world = DrillWorld()
    with pytest.raises(Killed):
        world.begin(world.crew(Hands(world, **dies(20, after=True))))
    world.writer.works = lambda: False
    world.items[:] = [each for each in world.items if each["kind"] not in ("Pod", "EndpointSlice")]
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    return world


def test_a_drill_writes_all_that_it_may_and_nothing_else() -> None:
    """Without a fault, with a true loss, and where Kueue is down and takes no finalizers off."""
    plain, missing, down = DrillWorld(), DrillWorld(options={"force_missing": True}), _down_and_undone()
    for world in (plain, missing):
        assert world.begin().outcome is Outcome.SUCCEEDED
    written = [_writes(world) for world in (plain, missing, down)]
    assert {*written[0], *written[1], *written[2]} == runbook("flavor-drill").rules
    assert Rule("kueue.x-k8s.io", "resourceflavors", "patch") not in written[0]
    assert (
        Rule("kueue.x-k8s.io", "workloads", "patch", namespaced=True) in written[2] - written[0] - written[1]
    )


# What nothing rests on is in no role: the plan is the same without it

_APIS = "apiservices.apiregistration.k8s.io"


def _of_a_restart(missing: Mapping[str, Unknown]) -> TargetPlan:
    world = restart_world()
    world.reader = {**world.reader, "missing": missing}
    return world.planned()


def _of_a_plugin(missing: Mapping[str, Unknown]) -> TargetPlan:
    scene = stale()
    scene.missing = {**missing}
    return scene.plan


def _of_a_drill(missing: Mapping[str, Unknown]) -> TargetPlan:
    world = DrillWorld()
    world.missing = missing
    plan: TargetPlan = world.plan()
    return plan


def _of_a_hold(missing: Mapping[str, Unknown]) -> TargetPlan:
    world = a_hold()
    world.missing = missing
    plan: TargetPlan = world.plan("team")
    return plan


Planned = Callable[[Mapping[str, Unknown]], TargetPlan]


@pytest.mark.parametrize(
    ("planned", "kind"),
    [
        (_of_a_restart, _APIS),
        (_of_a_restart, "pods"),
        (_of_a_restart, "endpointslices.discovery.k8s.io"),
        (_of_a_drill, _APIS),
        (_of_a_hold, _APIS),
        (_of_a_plugin, "clusterpolicies.nvidia.com"),
    ],
)
def test_the_plan_is_the_same_without_what_is_in_no_role(planned: Planned, kind: str) -> None:
    forbidden = {kind: Unknown(Reason.FORBIDDEN, f"no {kind}")}
    whole, less = planned({}), planned(forbidden)
    assert whole.blockers == less.blockers == ()
    assert (whole.effects, whole.notes) == (less.effects, less.notes)
    assert (whole.steps, whole.preconditions) == (less.steps, less.preconditions)


def test_a_restart_says_less_where_namespaces_can_not_be_counted() -> None:
    whole, less = _of_a_restart({}), _of_a_restart({"namespaces": Unknown(Reason.FORBIDDEN, "")})
    against = {each.guard for each in less.blockers}
    assert against <= {"state-namespace-exists"}, "it is read by name, too"
    assert whole.effects != less.effects
