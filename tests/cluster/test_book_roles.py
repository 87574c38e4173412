"""The printed roles of the runbooks beside drain and mig-reconfigure, rule by rule on a real API server: each
is enough for a plan, its run and its way back, and no rule of it can go unnoticed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gpuctl.cli.border import Stop
from gpuctl.cluster.connection import Access
from gpuctl.nvidia.node import CONFIG
from gpuctl.runbook.catalogue import BOOKS, runbook
from gpuctl.runbook.conduct import Ending
from gpuctl.runbook.permissions import LOCKS_AND_JOURNALS, permissions_of
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.records import JOURNAL, KEY, Outcome, Run, Standing, labels_of

from .bed import Bed, stages
from .bed.migworld import MigWorld
from .bed.simulated import SimulatedNodes, gpu_node
from .operating import Operator
from .roles import MADE_FOR, bound, names, with_access
from .test_queue_growth import Queues
from .test_runbook_permissions import HALVES, POLICIES, SEVEN, SLICES
from .test_vllm_switch_mode import GPU, engine

TAG = secrets.token_hex(3)
STATE, WORK = f"roles-{TAG}", f"roles-{TAG}-work"
FAILED, STALE, RIGHT, BARE = "roles-failed", "roles-stale", "roles-right", "roles-bare"
FORSAKEN = "20261101-120000-abcdef"  # a drill that nobody goes on with
RECOVER, TAINT, PLUGIN = "mig-recover", "taint-unmigged", "device-plugin-restart"
RESTART, LIMIT, HOLD, DRILL = "kueue-restart", "queue-limit", "flavor-hold", "flavor-drill"
SWITCH = "vllm-switch-mode"
MANAGER = "kueue-system/kueue-controller-manager"
OTHERS = tuple(book for book in BOOKS if book not in ("drain", "mig-reconfigure"))
ROLES = {book: {str(each.rule): each for each in permissions_of(runbook(book)).cluster} for book in OTHERS}
# What Workloads ask for hangs on Kueue's configuration where it has not looked at them yet, which is hard to
# hold on to: tried in memory.
IN_MEMORY = {
    (LIMIT, rule)
    for rule in (
        "get configmaps",
        "list services",
        "list deployments.apps",
        "list mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "list validatingwebhookconfigurations.admissionregistration.k8s.io",
    )
}
LOOKS = [
    (book, rule)
    for book, role in ROLES.items()
    for rule, each in role.items()
    if each.rule not in runbook(book).rules and (book, rule) not in IN_MEMORY
]
# What tells whether MIG is as labelled: where MIG manager says that it failed, nothing else is needed.
STANDING = ("list configmaps", "create pods/exec", "get pods/exec", "list clusterpolicies.nvidia.com")


# Users


def without(book: str, rule: str) -> str:
    """The user who may do all that the runbook takes, but for this. It must not name what it lacks."""
    return f"roles-{TAG}-{OTHERS.index(book)}-{list(ROLES[book]).index(rule)}"


def whole(book: str) -> str:
    """The user who may do all that the runbook takes."""
    return f"roles-{TAG}-{OTHERS.index(book)}"


KEEPERS = f"roles-{TAG}-state"


def roles() -> Iterator[dict[str, Any]]:
    yield from bound(KEEPERS, [each.rule for each in LOCKS_AND_JOURNALS], TAG, STATE, group=True)
    for book, role in ROLES.items():
        yield from bound(whole(book), [each.rule for each in role.values()], TAG)
        for rule in role:
            yield from bound(
                without(book, rule), [each.rule for name, each in role.items() if name != rule], TAG
            )


# The scene: for each runbook something to do, at which every rule of its role tells something


@dataclass(frozen=True)
class About:
    """What a runbook is asked for."""

    book: str
    target: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Scene:
    bed: Bed
    queues: Queues

    def user(self, name: str) -> Operator:
        """Somebody with what is given to this user."""
        access = Access(kubeconfig=str(self.bed.kubeconfig), as_user=name, as_groups=(KEEPERS,))
        return with_access(access, STATE)

    def about(self, book: str, rule: str = "") -> About:
        """The runbook on what this rule tells something of."""
        queue = self.queues.name("borrower")
        quota = {"flavor": self.queues.name("plain"), "resource": "cpu"}
        if book == LIMIT and rule.endswith("jobs.batch"):
            return About(book, f"job/{WORK}/long", {"deadline": "900"})
        if book == LIMIT and rule == "list clusterqueues.kueue.x-k8s.io":
            return About(book, self.queues.name("lender"), {**quota, "lending_limit": "4"})
        if book == SWITCH and "statefulsets" in rule:
            return About(book, f"statefulset/{WORK}/set", {"to": "eager"})
        if book in (RECOVER, TAINT) and rule == SLICES:  # who offers GPUs is not the DRA driver's
            return About(book, BARE, {})
        if book == TAINT and rule in STANDING:
            return About(book, RIGHT, {})
        return {
            PLUGIN: About(book, STALE, {}),
            RECOVER: About(book, FAILED, {}),
            TAINT: About(book, FAILED, {}),
            HOLD: About(book, queue, {"seconds": 2.0}),
            LIMIT: About(book, queue, {**quota, "borrowing_limit": "1"}),
            RESTART: About(book, MANAGER, {}),
            DRILL: About(book, "canary", {}),
            SWITCH: About(book, f"{WORK}/chat", {"to": "eager"}),
        }[book]


@pytest.fixture(scope="module")
def scene(bed: Bed) -> Iterator[Scene]:
    queues = Queues(bed, WORK)
    try:
        for each in (STATE, WORK):
            bed.kubectl("create", "namespace", each)
        with MigWorld(SimulatedNodes(bed)) as world:
            bed.kueue.wait_healthy()
            bed.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(POLICIES))
            create(bed, *roles(), *forsaken(), CLAIM)
            nodes(world)
            lines(queues)
            engines(bed)
            yield Scene(bed, queues)
    finally:
        _remove(queues)


def _remove(queues: Queues) -> None:
    """What there is of it: it may have failed on the way."""
    bed = queues.bed
    queues.remove()
    bed.gpu_capacity(bed.node, {GPU: 0})
    bed.kubectl("delete", "crd", "clusterpolicies.nvidia.com", "--ignore-not-found")
    bed.kubectl("delete", "clusterroles,clusterrolebindings", "-l", f"{MADE_FOR}={TAG}", "--wait=false")
    bed.kubectl("delete", "namespace", STATE, WORK, f"gpuctl-drill-{FORSAKEN}", "--wait=false", check=False)


def create(bed: Bed, *objects: Mapping[str, Any]) -> None:
    bed.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


CLAIM = {  # of something that is no GPU: that it is none stands in the claim alone
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "link", "namespace": WORK},
    "spec": {"devices": {"requests": [{"name": "link", "exactly": {"deviceClassName": "net.example.com"}}]}},
}


def claiming(node: str) -> dict[str, Any]:
    """A pod on the node that holds a device by a claim, bound past the scheduler."""
    container = {
        "name": "main",
        "image": "registry.example.com/team/app:1",
        "resources": {"claims": [{"name": "link"}]},
    }
    spec = {
        "nodeName": node,
        "resourceClaims": [{"name": "link", "resourceClaimName": "link"}],
        "containers": [container],
    }
    about = {
        "name": f"on-{node}",
        "namespace": WORK,
        "annotations": {stages.JOB: stages.RUNS},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def forsaken() -> Iterator[dict[str, Any]]:
    """What is left of a drill that was given up, and its journal."""
    labels = labels_of(FORSAKEN, DRILL)
    now = datetime.now(UTC)
    run = Run(
        id=FORSAKEN,
        runbook=DRILL,
        target="canary",
        state=Standing.FINISHED,
        outcome=Outcome.SUCCEEDED,
        started_at=now,
        updated_at=now,
        finished_at=now,
    )
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{JOURNAL}{FORSAKEN}", "namespace": STATE, "labels": labels},
        "data": {KEY: msgspec.json.encode(run).decode()},
    }
    about = {"name": f"gpuctl-drill-{FORSAKEN}", "labels": labels}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": about}


def nodes(world: MigWorld) -> None:
    """One whose MIG manager failed, one whose device plugin is stale, one as it should be, one without."""
    failed, stale, _ = world.add(*(gpu_node(each, profiles=[SEVEN]) for each in (FAILED, STALE, RIGHT)))
    world.nodes.add(gpu_node(BARE, resources={"nvidia.com/gpu": None}))
    failed.fail_at("apply")
    world.bed.kubectl("label", "node", FAILED, "--overwrite", f"{CONFIG}=all-3g.40gb")
    stale.slice(HALVES)
    create(world.bed, claiming(FAILED), claiming(STALE))
    failed.ended("failed", "all-3g.40gb")


def lines(queues: Queues) -> None:
    """One queue that borrows of another, and a Workload that waits; and a Job that runs."""
    queues.apply(
        queues.flavor(),
        *queues.line("lender", {"nominalQuota": 8}, cohort="pool"),
        *queues.line("borrower", {"nominalQuota": 2, "borrowingLimit": 4}, cohort="pool"),
        queues.workload("one", "borrower", 5),
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "long", "namespace": WORK},
            "spec": {
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "nodeSelector": {"no-such": "node"},
                        "containers": [{"name": "main", "image": "localhost/busybox:1"}],
                    }
                }
            },
        },
    )
    queues.admitted("one")
    queues.apply(queues.workload("two", "borrower", 9))


def engines(bed: Bed) -> None:
    """Two engines that serve, and room for a third."""
    bed.gpu_capacity(bed.node, {GPU: 3})
    engine(bed, WORK)
    deployment = json.loads(bed.kubectl("-n", WORK, "get", "deployment", "chat", "-o", "json"))
    template = deployment["spec"]["template"]
    template["metadata"] = {"labels": {"app": "set"}}
    spec = {"serviceName": "set", "selector": {"matchLabels": {"app": "set"}}, "template": template}
    about = {"name": "set", "namespace": WORK}
    create(bed, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": about, "spec": spec})
    bed.kubectl("-n", WORK, "rollout", "status", "statefulset/set", "--timeout=90s")


# What is looked at


@dataclass(frozen=True)
class Plans:
    """The plans of the whole roles, by what they are about, and without each rule."""

    whole: Mapping[tuple[str, str], TargetPlan]
    without: Mapping[tuple[str, str], TargetPlan | Stop]


@pytest.fixture(scope="module")
def plans(scene: Scene) -> Plans:
    """All at once, of one state of the cluster."""

    def planned(user: str, about: About) -> TargetPlan | Stop:
        try:
            return scene.user(user).plan_for(about.book, about.target, **about.options)
        except Stop as stop:
            return stop

    with ThreadPoolExecutor(6) as pool:
        abouts = {(each.book, each.target): each for each in (scene.about(*look) for look in LOOKS)}
        with_all = {key: pool.submit(planned, whole(each.book), each) for key, each in abouts.items()}
        lacking = {each: pool.submit(planned, without(*each), scene.about(*each)) for each in LOOKS}
        found = {key: each.result() for key, each in with_all.items()}
        return Plans(
            {key: each for key, each in found.items() if isinstance(each, TargetPlan)},
            {key: each.result() for key, each in lacking.items()},
        )


@pytest.mark.parametrize("book", OTHERS)
def test_with_the_role_nothing_speaks_against_the_plan(plans: Plans, scene: Scene, book: str) -> None:
    plan = plans.whole[book, scene.about(book).target]
    assert plan.blockers == ()
    assert not [each for each in plan.effects if "can't be told" in each]


@pytest.mark.parametrize(("book", "rule"), LOOKS)
def test_without_one_rule_the_plan_is_blocked_or_says_less(
    plans: Plans, scene: Scene, book: str, rule: str
) -> None:
    plan = plans.without[book, rule]
    if isinstance(plan, Stop):
        assert names(str(plan), rule)
    elif ROLES[book][rule].assertions:
        against = [each.message for each in plan.blockers]
        assert any(names(each, rule) for each in against), against
    else:
        with_all = plans.whole[book, scene.about(book, rule).target]
        assert plan.blockers == ()
        assert plan.effects != with_all.effects
        assert [each.says for each in plan.steps] == [each.says for each in with_all.steps]


# What is written

WRITES = [(book, str(rule)) for book in OTHERS if book != DRILL for rule in sorted(runbook(book).rules)]
BACK: Mapping[str, Mapping[str, Any]] = {
    LIMIT: {"borrowing_limit": "4"},
    TAINT: {"remove": True},
}  # by another plan, of what is done
INTERRUPTED = {HOLD: "watch", SWITCH: "wait until every new pod"}  # taken back in the middle


@dataclass(frozen=True)
class Runs:
    """How runs ended: of users who lack a rule, of those who have the whole role, and the ways back."""

    lacking: Mapping[tuple[str, str], Ending]
    to_the_end: Mapping[tuple[str, str], tuple[Ending, Operator]]
    back: Mapping[tuple[str, str], Ending]


class Worker:
    """Runs one runbook after the other on what the scene has for them, and takes back what is left."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.lacking: dict[tuple[str, str], Ending] = {}
        self.to_the_end: dict[tuple[str, str], tuple[Ending, Operator]] = {}
        self.back: dict[tuple[str, str], Ending] = {}

    def lack(self, book: str, *rules: str) -> None:
        """A run without each of these rules; by another user, who has the whole role, it is taken back."""
        for rule in rules:
            ending = self._run(self.scene.user(without(book, rule)), self.scene.about(book, rule))
            self.lacking[book, rule] = ending
            if ending.left:
                self.back[book, rule] = self.scene.user(whole(book)).go_on(ending.run, back=True)

    def finish(self, book: str, rule: str = "", **options: Any) -> None:
        """A run from begin to end, and of what can be undone afterwards the undo."""
        about = self.scene.about(book, rule)
        for more in ({}, BACK[book]) if book in BACK and not rule else ({},):
            who = self.scene.user(whole(book))
            done = self._run(who, replace(about, options={**about.options, **more, **options}))
            self.to_the_end[book, f"{about.target} {more}"] = (done, who)

    def interrupt(self, book: str) -> None:
        """A run that is interrupted in the middle, and taken back."""
        who = replace(self.scene.user(whole(book)), interrupted_at=INTERRUPTED[book])
        ending = self._run(who, self.scene.about(book))
        self.back[book, INTERRUPTED[book]] = self.scene.user(whole(book)).go_on(ending.run, back=True)

    @staticmethod
    def _run(who: Operator, about: About) -> Ending:
        plan = who.plan_for(about.book, about.target, **about.options)
        return who.carry_out(about.book, about.target, plan, **about.options)


def of_the_stale_node(worker: Worker) -> None:
    worker.lack(PLUGIN, "patch nodes", "delete pods")
    worker.finish(PLUGIN)


def of_the_failed_node(worker: Worker) -> None:
    worker.lack(TAINT, "patch nodes")
    worker.finish(TAINT)
    worker.lack(RECOVER, "patch nodes", "delete pods")
    worker.finish(RECOVER)


def of_the_queues(worker: Worker) -> None:
    queues, jobs = "patch clusterqueues.kueue.x-k8s.io", "patch jobs.batch"
    worker.lack(HOLD, queues)
    worker.interrupt(HOLD)
    worker.finish(HOLD)
    worker.lack(LIMIT, queues, jobs)
    worker.finish(LIMIT)
    worker.finish(LIMIT, jobs)


def of_the_engines(worker: Worker) -> None:
    deployments, sets = "patch deployments.apps", "patch statefulsets.apps"
    worker.lack(SWITCH, deployments, sets)
    worker.interrupt(SWITCH)
    worker.finish(SWITCH)
    worker.finish(SWITCH, sets)


def of_the_manager(worker: Worker) -> None:
    """Last, and alone: while it starts anew, nothing is admitted. It must not run where nothing does."""
    worker.scene.bed.kubectl("cordon", FAILED, STALE, RIGHT, BARE)
    worker.lack(RESTART, "patch deployments.apps")
    worker.finish(RESTART)


@pytest.fixture(scope="module")
def runs(scene: Scene, plans: Plans) -> Runs:
    """Each target by itself, side by side."""
    assert plans.whole
    worker = Worker(scene)
    works: tuple[Callable[[Worker], None], ...] = (
        of_the_failed_node,
        of_the_stale_node,
        of_the_engines,
        of_the_queues,
    )
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work, worker) for work in works]:
            each.result()
    of_the_manager(worker)
    scene.bed.kueue.wait_healthy()
    return Runs(worker.lacking, worker.to_the_end, worker.back)


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("book", "rule"), WRITES)
def test_without_one_rule_to_write_a_run_fails_and_names_it(runs: Runs, book: str, rule: str) -> None:
    ending = runs.lacking[book, rule]
    assert ending.outcome in (Outcome.FAILED, Outcome.REFUSED)
    assert names(ending.why, rule), ending.why


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("book", [book for book in OTHERS if book != DRILL])
def test_the_role_is_enough_to_the_end(runs: Runs, book: str) -> None:
    found = {what: each for (name, what), each in runs.to_the_end.items() if name == book}
    assert found
    for what, (ending, who) in found.items():
        assert ending.outcome is Outcome.SUCCEEDED, (what, ending, who.said)
        refused = [each for each in who.said if "forbidden" in each or "permission" in each]
        assert all(each.startswith("no Event could be written") for each in refused), refused


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_the_role_is_enough_for_the_way_back(runs: Runs) -> None:
    assert {book for book, _ in runs.back} >= {PLUGIN, RECOVER, HOLD, SWITCH}
    assert {each.outcome for each in runs.back.values()} == {Outcome.REVERTED}, runs.back


# The drill writes the most: a run for each of these rules, each with locks and journals of its own

PATCHES_FLAVORS = "patch resourceflavors.kueue.x-k8s.io"
PATCHES_WORKLOADS = "patch workloads.kueue.x-k8s.io"  # only where Kueue is down: proved in memory
DRILL_WRITES = [str(rule) for rule in sorted(runbook(DRILL).rules) if str(rule) != PATCHES_WORKLOADS]
DRILLS: Mapping[str, Mapping[str, Any]] = {"default": {}, "missing": {"force_missing": True}}


@dataclass(frozen=True)
class Drills:
    """How drills ended, whole ones and those without a rule, and how these were taken back."""

    whole: Mapping[str, Ending]
    lacking: Mapping[str, tuple[Ending, Ending | None]]
    left: str


@pytest.fixture(scope="module")
def drills(scene: Scene) -> Iterator[Drills]:
    spaces = [f"{STATE}-{number}" for number, _ in enumerate((*DRILLS, *DRILL_WRITES))]
    kept = [each.rule for each in LOCKS_AND_JOURNALS]
    for each in spaces:
        scene.bed.kubectl("create", "namespace", each)
        create(scene.bed, *bound(KEEPERS, kept, TAG, each, group=True))

    def drill(user: str, space: str, options: Mapping[str, Any]) -> tuple[Ending, Ending | None]:
        who = replace(scene.user(user), state=space)
        ending = who.carry_out(DRILL, "canary", who.plan_for(DRILL, "canary", **options), **options)
        other = replace(scene.user(whole(DRILL)), state=space)
        return ending, other.go_on(ending.run, back=True) if ending.left else None

    with ThreadPoolExecutor(6) as pool:
        places = iter(spaces)
        ended = {
            each: pool.submit(drill, whole(DRILL), next(places), options) for each, options in DRILLS.items()
        }
        failed = {
            rule: pool.submit(
                drill,
                without(DRILL, rule),
                next(places),
                DRILLS["missing" if rule == PATCHES_FLAVORS else "default"],
            )
            for rule in DRILL_WRITES
        }
        endings = {each: found.result()[0] for each, found in ended.items()}
        lacking = {rule: found.result() for rule, found in failed.items()}
    kinds = "namespaces,resourceflavors.kueue.x-k8s.io,clusterqueues.kueue.x-k8s.io"
    left = scene.bed.kubectl("get", kinds, "-l", f"gpuctl.dev/runbook={DRILL}", "-o", "name")
    yield Drills(endings, lacking, left)
    scene.bed.kubectl("delete", "namespace", *spaces, "--wait=false")


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", DRILLS)
def test_the_role_is_enough_for_a_drill(drills: Drills, variant: str) -> None:
    assert drills.whole[variant].outcome is Outcome.SUCCEEDED


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("rule", DRILL_WRITES)
def test_without_one_rule_to_write_a_drill_fails_and_is_taken_back(drills: Drills, rule: str) -> None:
    ending, back = drills.lacking[rule]
    assert ending.outcome in (Outcome.FAILED, Outcome.REFUSED)
    assert names(ending.why, rule), ending.why
    assert back is None or back.outcome is Outcome.REVERTED
    assert {*drills.left.split()} <= {f"namespace/gpuctl-drill-{FORSAKEN}"}
