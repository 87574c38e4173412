"""The printed roles of runbooks on a real API server: enough, no rule too many, and held to what runbooks
change of nodes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.cli.border import Stop
from gpuctl.cluster.connection import Access
from gpuctl.report.rbac import Account, node_policy
from gpuctl.runbook.catalogue import runbook
from gpuctl.runbook.conduct import Ending
from gpuctl.runbook.permissions import LOCKS_AND_JOURNALS, permissions_of
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.records import Outcome
from tests.cluster import gpuctl
from tests.cluster.bed import Bed, stages
from tests.cluster.bed.kubectl import Kubectl
from tests.cluster.bed.migworld import MigWorld
from tests.cluster.bed.simulated import SimulatedNodes, gpu_node
from tests.cluster.bed.workloads import Workloads

from .operating import Operator
from .roles import bound, names, with_access

SEVEN = ["1g.10gb"] * 7
HALVES = ["3g.40gb"] * 2
SLICE = "nvidia.com/mig-1g.10gb"
RENAMED = "acme.io/gpu-of-the-permissions"  # so that no other node of the bed offers it
TAG = secrets.token_hex(3)
STATE = f"permissions-{TAG}"  # of this test's locks and journals
ACCOUNT = Account(STATE, "gpuctl")
BUSY, SPARE, CHANGED = "permissions-busy", "permissions-spare", "permissions-changed"
BARE = "permissions-bare"  # it offers no GPU
SLICES = "list resourceslices.resource.k8s.io"
DRAIN, MIG = runbook("drain"), runbook("mig-reconfigure")
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    DRAIN.id: {"gpu_only": True},
    MIG.id: {"config": "all-3g.40gb", "change_timeout": 120},
}
READS = ("get", "list")
KUEUE = "kueue.x-k8s.io/v1beta2"


# Roles, and whom they are given to


def name_of(book: str, rule: str) -> str:
    """The user who may do all that the runbook takes, but for this. It must not name what it lacks."""
    rules = KEPT if book == "state" else CLUSTER[book]
    return f"permissions-{TAG}-{book.partition('-')[0]}-{list(rules).index(rule)}"


CLUSTER = {book.id: {str(each.rule): each for each in permissions_of(book).cluster} for book in (DRAIN, MIG)}
KEPT = {str(each.rule): each for each in LOCKS_AND_JOURNALS}
LOOKS = [
    (book, rule)
    for book, grants in CLUSTER.items()
    for rule, each in grants.items()
    if each.rule not in runbook(book).rules
]
WRITES = ["patch nodes", "create pods/eviction"]
IN_THE_STATE = f"permissions-{TAG}-state"
EVERYWHERE = f"permissions-{TAG}-drain"


def roles() -> Iterator[dict[str, Any]]:
    """All of them, made at once: each is given to one user who asks once."""
    kept = [each.rule for each in KEPT.values()]
    drain = [each.rule for each in CLUSTER[DRAIN.id].values()]
    yield from bound(IN_THE_STATE, kept, TAG, STATE, group=True)
    yield from bound(EVERYWHERE, drain, TAG, group=True)
    for book, rule in (*LOOKS, *((DRAIN.id, each) for each in WRITES)):
        rules = [each.rule for name, each in CLUSTER[book].items() if name != rule]
        yield from bound(name_of(book, rule), rules, TAG)
    for rule in KEPT:
        yield from bound(name_of("state", rule), [each for each in kept if str(each) != rule], TAG, STATE)


# The scene: a busy node with pods of every kind of owner, and one node for each write that is refused


FLAVOR = {
    "apiVersion": KUEUE,
    "kind": "ResourceFlavor",
    "metadata": {"name": f"permissions-{TAG}"},
    "spec": {"nodeLabels": {"kubernetes.io/hostname": BUSY}},
}
POLICIES = {  # of the GPU operator, as far as it must be served
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusterpolicies.nvidia.com"},
    "spec": {
        "group": "nvidia.com",
        "names": {"kind": "ClusterPolicy", "plural": "clusterpolicies"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


def promises(kind: str, nominal: int, **more: Any) -> dict[str, Any]:
    """A ClusterQueue or a Cohort with quota of the flavor."""
    quota = {"name": SLICE, "nominalQuota": nominal}
    group = {
        "coveredResources": [SLICE],
        "flavors": [{"name": f"permissions-{TAG}", "resources": [quota]}],
    }
    about = {"name": f"permissions-{TAG}"}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": about, "spec": {**more, "resourceGroups": [group]}}


CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "gpu"},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
}


def claiming() -> dict[str, Any]:
    """A Job whose pod holds a GPU by a claim, bound past the scheduler."""
    container = {"name": "main", "image": "registry.example.com/team/app:1"}
    container |= {"resources": {"claims": [{"name": "gpu"}]}}  # type: ignore[dict-item]
    spec = {
        "nodeName": BUSY,
        "restartPolicy": "Never",
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "containers": [container],
    }
    marks = {"annotations": {stages.JOB: stages.RUNS}, "labels": {"app": "claims"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "claims"},
        "spec": {"template": {"metadata": marks, "spec": spec}},
    }


def workload_of(job: dict[str, Any]) -> dict[str, Any]:
    """A Workload as Kueue makes it of a Job."""
    about = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": about["name"], "uid": about["uid"]}
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example.com/a:1"}]}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": "job-train", "ownerReferences": [{**owner, "controller": True}]},
        "spec": {
            "queueName": "none",
            "podSets": [{"name": "main", "count": 1, "template": {"spec": spec}}],
        },
    }


@dataclass(frozen=True)
class Scene:
    """A cluster where every rule of the roles tells something."""

    bed: Bed
    world: MigWorld
    namespace: str

    @property
    def admin(self) -> Operator:
        """Who may do everything."""
        return with_access(Access(kubeconfig=str(self.bed.kubeconfig)), STATE)

    def user(self, name: str, *groups: str) -> Operator:
        """Somebody with what is given to this user and these groups."""
        access = Access(kubeconfig=str(self.bed.kubeconfig), as_user=name, as_groups=groups)
        return with_access(access, STATE)

    def create(self, *objects: Mapping[str, Any], namespace: str = "") -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        where = ("-n", namespace) if namespace else ()
        self.bed.kubectl(*where, "create", "-f", "-", input=json.dumps(listed))


def node_for(rule: str) -> str:
    """The node that a user without this rule is to drain."""
    return f"permissions-w{[*WRITES, *KEPT].index(rule)}"


@pytest.fixture(scope="module")
def scene(bed: Bed) -> Iterator[Scene]:
    namespace = f"permissions-{TAG}-work"
    try:
        for each in (STATE, namespace):
            bed.kubectl("create", "namespace", each)
            bed.kubectl("-n", each, "wait", "--for=create", "serviceaccount/default", "--timeout=30s")
        with _made(bed, namespace) as made:
            yield made
    finally:
        _remove(bed, namespace)


@contextmanager
def _made(bed: Bed, namespace: str) -> Iterator[Scene]:
    small = [gpu_node(node_for(rule), profiles=[None], resources={RENAMED: 1}) for rule in (*WRITES, *KEPT)]
    nodes = SimulatedNodes(bed)
    with MigWorld(nodes) as world:
        made = Scene(bed, world, namespace)
        bed.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(POLICIES))
        made.create(*roles())
        world.add(*(gpu_node(each, profiles=[SEVEN]) for each in (BUSY, SPARE, CHANGED)))
        nodes.add(*small, gpu_node(BARE, resources={"nvidia.com/gpu": None}))
        _busy(made)
        yield made


def _remove(bed: Bed, namespace: str) -> None:
    """What there is of it: it may have failed on the way."""
    gone = ("--ignore-not-found", "--wait=false")
    bed.kubectl("delete", "clusterqueue,cohort,resourceflavor", f"permissions-{TAG}", *gone)
    bed.kubectl("delete", "crd", "clusterpolicies.nvidia.com", "--ignore-not-found")
    kinds = "clusterroles,clusterrolebindings"
    bed.kubectl("delete", kinds, "-l", f"made-for={TAG}", "--wait=false")
    bed.kubectl("delete", "namespace", STATE, namespace, *gone)


def _busy(scene: Scene) -> None:
    work = Workloads(scene.bed, scene.namespace)
    scene.create(CLAIM, claiming(), namespace=scene.namespace)
    for name in ("web", "db"):
        make = work.deployment if name == "web" else work.stateful_set
        make(name, replicas=2, asks={SLICE: 1}, node=BUSY)
        work.budget(name, max_unavailable=1)
    work.job("train", asks={SLICE: 1}, node=BUSY)
    small = len([*WRITES, *KEPT])
    work.job("small", completions=small, asks={RENAMED: 1})  # each node has room for one
    queue = promises("ClusterQueue", 7, namespaceSelector={}, cohortName=f"permissions-{TAG}")
    scene.create(FLAVOR, queue, promises("Cohort", 1))
    job = json.loads(scene.bed.kubectl("-n", scene.namespace, "get", "job", "train", "-o", "json"))
    scene.create(workload_of(job), namespace=scene.namespace)
    for name, count in (("web", 2), ("db", 2), ("train", 1), ("claims", 1), ("small", small)):
        work.running(name, count)


# What is looked at


@dataclass(frozen=True)
class Plans:
    """The plans of the whole roles, and without each rule."""

    whole: Mapping[str, TargetPlan]
    without: Mapping[tuple[str, str], TargetPlan | Stop]


@pytest.fixture(scope="module")
def plans(scene: Scene) -> Plans:
    """All at once, of one state of the cluster."""

    def lacking(book: str, rule: str) -> TargetPlan | Stop:
        try:
            where = BARE if rule == SLICES else BUSY  # who offers GPUs is not the DRA driver's
            return scene.user(name_of(book, rule), IN_THE_STATE).plan_for(book, where, **OPTIONS[book])
        except Stop as stop:
            return stop

    with ThreadPoolExecutor(6) as pool:
        whole = {book: pool.submit(scene.admin.plan_for, book, BUSY, **OPTIONS[book]) for book in CLUSTER}
        without = {each: pool.submit(lacking, *each) for each in LOOKS}
        return Plans(
            {book: each.result() for book, each in whole.items()},
            {key: each.result() for key, each in without.items()},
        )


@pytest.mark.parametrize("book", CLUSTER)
def test_nothing_speaks_against_the_plan(plans: Plans, book: str) -> None:
    plan = plans.whole[book]
    assert plan.blockers == ()
    assert not [each for each in plan.effects if "can't be told" in each]
    assert plan.bounds.evictions == 6


@pytest.mark.parametrize(("book", "rule"), LOOKS)
def test_without_one_rule_the_plan_is_blocked_or_says_less(plans: Plans, book: str, rule: str) -> None:
    whole, plan = plans.whole[book], plans.without[book, rule]
    if isinstance(plan, Stop):
        assert names(str(plan), rule)
    elif CLUSTER[book][rule].assertions:
        against = [each.message for each in plan.blockers]
        assert any(names(each, rule) for each in against), against
        assert not plan.overridden
    else:
        assert plan.blockers == ()
        assert (plan.effects, plan.notes) != (whole.effects, whole.notes)
        assert plan.steps[0] == whole.steps[0]


# What is written


@pytest.fixture(scope="module")
def drains(scene: Scene) -> Mapping[str, tuple[Operator, TargetPlan, Ending]]:
    """A drain by each user who lacks a permission to write, each of a node of its own. Who may remove no
    journals goes first: anybody else removes those that are done, and leaves none that could be told of."""

    def drained(rule: str, who: Operator) -> tuple[Operator, TargetPlan, Ending]:
        about = (DRAIN.id, node_for(rule))
        plan = who.plan_for(*about, **OPTIONS[DRAIN.id])
        return who, plan, who.carry_out(*about, plan, **OPTIONS[DRAIN.id])

    users = {rule: scene.user(name_of(DRAIN.id, rule), IN_THE_STATE) for rule in WRITES}
    users |= {rule: scene.user(name_of("state", rule), EVERYWHERE) for rule in KEPT}
    tidying = drained(TIDYING, users.pop(TIDYING))
    with ThreadPoolExecutor(6) as pool:
        results = {rule: pool.submit(drained, rule, who) for rule, who in users.items()}
        return {TIDYING: tidying, **{rule: each.result() for rule, each in results.items()}}


Drains = Mapping[str, tuple[Operator, TargetPlan, Ending]]
RESUMING = ("get configmaps", "patch leases.coordination.k8s.io")
RELEASING = "delete leases.coordination.k8s.io"
TIDYING = "delete configmaps"
BEGINNING = [rule for rule in (*WRITES, *KEPT) if rule not in (*RESUMING, RELEASING, TIDYING)]


@pytest.mark.parametrize("rule", BEGINNING)
def test_without_one_rule_a_run_fails_and_names_it(drains: Drains, scene: Scene, rule: str) -> None:
    _, plan, ending = drains[rule]
    assert ending.outcome in (Outcome.FAILED, Outcome.REFUSED)
    assert names(ending.why, rule), ending.why
    if rule.startswith("list "):
        assert any(names(each.message, rule) for each in plan.blockers)
    pods = Workloads(scene.bed, scene.namespace).pods("small")
    there = [each for each in pods if each["spec"].get("nodeName") == node_for(rule)]
    assert [each["metadata"].get("deletionTimestamp") for each in there] == [None], "nothing is evicted"


@pytest.mark.parametrize("rule", RESUMING)
def test_without_one_rule_nobody_goes_on_with_a_run(drains: Drains, scene: Scene, rule: str) -> None:
    """It is of a run that stands still, for it could not evict."""
    who, _, own = drains[rule]
    assert own.outcome is Outcome.SUCCEEDED, own.why
    _, _, stood = drains["create pods/eviction"]
    assert stood.left
    ending = who.go_on(stood.run)
    assert ending.outcome is Outcome.FAILED
    assert names(ending.why, rule), ending.why


def test_without_the_rule_for_it_a_lock_stays_and_is_named(drains: Drains, scene: Scene) -> None:
    _, _, ending = drains[RELEASING]
    assert ending.outcome is Outcome.SUCCEEDED
    again = scene.admin.plan_for(DRAIN.id, node_for(RELEASING), **OPTIONS[DRAIN.id])
    assert any(ending.run in each.message for each in again.blockers)


def test_without_the_rule_for_it_old_journals_stay(drains: Drains) -> None:
    who, _, ending = drains[TIDYING]
    assert ending.outcome is Outcome.SUCCEEDED
    assert any("old journals could not be removed" in each and names(each, TIDYING) for each in who.said)


def test_without_events_a_run_says_so_and_goes_on(drains: Drains) -> None:
    """None of these users may make any."""
    who, _, _ = drains[RELEASING]
    assert any("no Event could be written" in each for each in who.said)


# The account that the manifests make


@pytest.fixture(scope="module")
def account(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kubeconfig of the account of `gpuctl rbac`, with all that is printed for it."""
    bed = scene.bed
    answer = gpuctl.run("rbac", "--for", MIG.id, "--account", f"{ACCOUNT.namespace}/{ACCOUNT.name}")
    bed.kubectl("apply", "-f", "-", input=answer.stdout)
    content = yaml.safe_load(bed.kubeconfig.read_text())
    token = bed.kubectl("-n", ACCOUNT.namespace, "create", "token", ACCOUNT.name).strip()
    for user in content["users"]:
        user["user"] = {"token": token}
    file = tmp_path_factory.mktemp("account") / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    as_it = Kubectl(file)
    refused = ("patch", "node", SPARE, "--type=merge", "--dry-run=server")
    patch = json.dumps({"metadata": {"labels": {"team": "mine"}}})
    bed.wait(
        lambda: "this account may" in as_it(*refused, "-p", patch, check=False), 90, "the policy to hold"
    )
    yield file
    rest = (each for each in yaml.safe_load_all(answer.stdout) if each["kind"] != "Namespace")
    bed.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=yaml.safe_dump_all(rest))


def test_the_account_changes_a_busy_node_to_the_end(scene: Scene, account: Path) -> None:
    work = Workloads(scene.bed, scene.namespace)
    scene.bed.kubectl("cordon", SPARE, BUSY)
    work.deployment("moves", replicas=2, asks={SLICE: 1})
    work.budget("moves", max_unavailable=1)
    work.running("moves", 2)
    scene.bed.kubectl("uncordon", SPARE, BUSY)
    assert {each["spec"]["nodeName"] for each in work.pods("moves")} == {CHANGED}
    operator = with_access(Access(kubeconfig=str(account)), STATE)
    plan = operator.plan_for(MIG.id, CHANGED, **OPTIONS[MIG.id])
    assert plan.blockers == ()
    ending = operator.carry_out(MIG.id, CHANGED, plan, **OPTIONS[MIG.id])
    assert ending.outcome is Outcome.SUCCEEDED, (ending, operator.said)
    assert scene.world.node(CHANGED).layout == [HALVES]
    node = json.loads(scene.bed.kubectl("get", "node", CHANGED, "-o", "json"))
    assert "unschedulable" not in node["spec"]
    assert not [each for each in operator.said if "forbidden" in each or "denied" in each]


def test_can_i_says_of_a_runbook_what_the_account_may(account: Path) -> None:
    def asked(book: str) -> tuple[int, dict[tuple[str, str], str]]:
        arguments = ("can-i", "--for", book, "--state-namespace", STATE, "-o", "json")
        result = gpuctl.run(*arguments, kubeconfig=account)
        found = json.loads(result.stdout)["permissions"]
        names = {(f"{each['verb']} {each['resource']}", each["namespace"]): each["allowed"] for each in found}
        return result.returncode, names

    code, own = asked(MIG.id)
    assert (code, {*own.values()}) == (0, {"yes"})
    assert ("create leases", STATE) in own
    assert ("create events", "default") in own
    code, others = asked("kueue-restart")
    assert code == 1
    assert (others["patch deployments", ""], others["create leases", STATE]) == ("no", "yes")


# Its policy

Patch = Sequence[Mapping[str, Any]]


def put(path: str, value: Any) -> Patch:
    return ({"op": "add", "path": path, "value": value},)


def drop(path: str) -> Patch:
    return ({"op": "remove", "path": path},)


TAINT = {"key": "team", "value": "mine", "effect": "NoSchedule"}
OWN_TAINT = {"key": "gpuctl.dev/mig-not-as-labelled", "value": "all-1g.10gb", "effect": "NoSchedule"}
DENIED: Mapping[str, Patch] = {
    "another label": put("/metadata/labels/team", "mine"),
    "another value of a label": put("/metadata/labels/nvidia.com~1mig.strategy", "none"),
    "no label any more": drop("/metadata/labels/nvidia.com~1mig.strategy"),
    "no labels at all": drop("/metadata/labels"),
    "an operand that is taken away": put("/metadata/labels/nvidia.com~1gpu.deploy.device-plugin", "false"),
    "another annotation": put("/metadata/annotations/team", "mine"),
    "no annotation any more": drop("/metadata/annotations/kwok.x-k8s.io~1node"),
    "another taint": put("/spec/taints", [TAINT]),
    "an own taint that ends pods": put("/spec/taints", [{**OWN_TAINT, "effect": "NoExecute"}]),
    "a provider": put("/spec/providerID", "cloud://mine"),
    "a finalizer": put("/metadata/finalizers", ["example.com/mine"]),
    "an owner": put(
        "/metadata/ownerReferences",
        [{"apiVersion": "v1", "kind": "Node", "name": SPARE, "uid": "0a1b2c3d-0000-4000-8000-000000000000"}],
    ),
}
ALLOWED: Mapping[str, Patch] = {
    "a cordon": put("/spec/unschedulable", True),
    "a configuration": put("/metadata/labels/nvidia.com~1mig.config", "all-3g.40gb"),
    "NVSentinel kept off": put("/metadata/labels/k8saas.nvidia.com~1ManagedByNVSentinel", "false"),
    "an annotation of its own": put(
        "/metadata/annotations/gpuctl.dev~1cordoned-by", "20261130-000000-abcdef"
    ),
    "a taint of its own": put("/spec/taints", [OWN_TAINT]),
}


def tried(bed: Bed, file: Path, patch: Patch, *more: str) -> str:
    """What the API server says to a patch that it would not store."""
    arguments = ("patch", "node", SPARE, "--type=json", "--dry-run=server", *more, "-p", json.dumps(patch))
    return Kubectl(file)(*arguments, check=False)


@pytest.mark.parametrize("what", DENIED)
def test_of_nodes_the_account_may_not_change(scene: Scene, account: Path, what: str) -> None:
    assert "this account may change" in tried(scene.bed, account, DENIED[what])
    assert "this account" not in tried(scene.bed, scene.bed.kubeconfig, DENIED[what]), "it binds nobody else"


@pytest.mark.parametrize("what", ALLOWED)
def test_of_nodes_the_account_may_change(scene: Scene, account: Path, what: str) -> None:
    assert "patched" in tried(scene.bed, account, ALLOWED[what])


def test_the_status_of_nodes_is_no_part_of_the_role(scene: Scene, account: Path) -> None:
    patch = put("/status/capacity/nvidia.com~1gpu", "8")
    assert "forbidden" in tried(scene.bed, account, patch, "--subresource=status").lower()


def test_the_taints_of_others_stay(scene: Scene, account: Path) -> None:
    bed = scene.bed
    bed.kubectl("taint", "node", SPARE, "team=mine:NoSchedule")
    try:
        assert "this account may change" in tried(bed, account, drop("/spec/taints"))
        assert "patched" in tried(bed, account, put("/spec/taints", [TAINT, OWN_TAINT]))
    finally:
        bed.kubectl("taint", "node", SPARE, "team-")


def policy_status(bed: Bed, name: str) -> dict[str, Any]:
    """What the control plane says of a policy, once it has looked at it."""

    def status() -> dict[str, Any]:
        found = json.loads(bed.kubectl("get", "validatingadmissionpolicy", name, "-o", "json"))
        return dict(found.get("status", {}))

    bed.wait(lambda: "typeChecking" in status(), 90, f"the types of {name} to be checked")
    return dict(status()["typeChecking"])


@pytest.mark.usefixtures("account")
def test_the_policy_is_of_the_right_types(scene: Scene) -> None:
    """Types are checked: a field that does not exist is told."""
    name, bed = node_policy(ACCOUNT), scene.bed
    assert policy_status(bed, name) == {}
    policy = json.loads(bed.kubectl("get", "validatingadmissionpolicy", name, "-o", "json"))
    policy["metadata"] = {"name": f"permissions-{TAG}"}
    policy["spec"]["validations"][0]["expression"] = "object.spec.nonsense == 1"
    bed.kubectl("create", "-f", "-", input=json.dumps(policy))
    try:
        assert "nonsense" in str(policy_status(bed, f"permissions-{TAG}"))
    finally:
        bed.kubectl("delete", "validatingadmissionpolicy", f"permissions-{TAG}")
