"""Gates: each refuses, each is silent over slightly changed data, and each blocks where it can't tell."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gpuctl.audit.policy import POLICY, MaintenanceWindow, Policy, RunbooksPolicy
from gpuctl.facts.alerts import Alert, AlertState
from gpuctl.facts.gather import gather
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.facts.state import Each, Inapplicable, Reason, Unknown
from gpuctl.runbook import gates
from gpuctl.runbook.guard import Guard
from gpuctl.runbook.records import Member, Outcome, Run, Standing
from gpuctl.runbook.target import OPTIONS, SELF, TARGET, Self
from tests.memory import A_MOMENT, MemoryReader
from tests.runbook.little import NAMESPACE, a_node, a_pod

LATE = Unknown(Reason.TIMEOUT, "no answer in time")
PRODUCT, COUNT = "nvidia.com/gpu.product", "nvidia.com/gpu.count"
Items = list[dict[str, Any]]


@dataclass
class Around:
    """A cluster with three nodes of one pool, in which nothing speaks against anything."""

    items: Items = field(default_factory=lambda: calm())  # noqa: PLW0108 - defined below
    policy: dict[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, Unknown | Inapplicable] = field(default_factory=dict)
    firing: Each[Any, Alert] | Unknown | None = None
    now: datetime = A_MOMENT
    run: str = ""
    target: str = "gpu-1"

    def blocked(self, guard: Guard) -> list[str]:
        found = self._facts(guard)
        return [each.message for each in guard.blockers(found)]

    def noted(self, guard: Guard) -> list[str]:
        return list(guard.notes(self._facts(guard)))

    def _facts(self, guard: Guard) -> Any:
        policy = Policy(runbooks=RunbooksPolicy(**self.policy))
        arguments: dict[Any, Any] = {
            TARGET: self.target,
            OPTIONS: self.options,
            POLICY: policy,
            STATE_NAMESPACE: NAMESPACE,
            SELF: Self(self.run),
        }
        reader = MemoryReader(self.items, missing=self.missing, firing=self.firing, now=self.now)
        return gather(guard.needs, reader, arguments)


def gpu_node(name: str, **labels: str) -> dict[str, Any]:
    return a_node(name, **{PRODUCT: "A100", COUNT: "8", **labels})


def calm() -> Items:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "uid": "u"}}
    return [
        space,
        *(gpu_node(f"gpu-{number}") for number in (1, 2, 3)),
        a_pod("train-0"),
        a_pod("db-0", "gpu-2"),
    ]


def lease(run: str, name: str, target: str, uid: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-of-{name}",
            "labels": {"gpuctl.dev/run": run},
            "annotations": {
                "gpuctl.dev/target": target,
                "gpuctl.dev/target-uid": uid or f"uid-of-{target}",
                "gpuctl.dev/holder": "ben@desk",
            },
        },
        "spec": {
            "holderIdentity": f"{run}/s",
            "leaseDurationSeconds": 30,
            "acquireTime": "2020-01-01T00:00:00.000000Z",
        },
    }


def journal(id_: str, target: str = "gpu-9", hours_ago: float = 1, **about: Any) -> dict[str, Any]:
    at = A_MOMENT - timedelta(hours=hours_ago)
    run = Run(id=id_, runbook="little", target=target, started_at=at, updated_at=at, **about)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"gpuctl-run-{id_}",
            "namespace": NAMESPACE,
            "uid": id_,
            "labels": {"gpuctl.dev/run": id_},
        },
        "data": {"run.json": msgspec.json.encode(run).decode()},
    }


def with_(*items: dict[str, Any], **about: Any) -> Around:
    return Around([*calm(), *items], **about)


def on_the_node(change: Callable[[dict[str, Any]], object], **about: Any) -> Around:
    around = Around(**about)
    change(next(each for each in around.items if each["metadata"]["name"] == "gpu-1"))
    return around


# Nothing speaks against it


@pytest.mark.parametrize("guard", gates.NODE_GATES, ids=lambda guard: guard.id)
def test_in_a_calm_cluster_all_are_silent(guard: Guard) -> None:
    assert Around().blocked(guard) == []
    assert Around().noted(guard) == []


NEEDED: Mapping[str, tuple[str, ...]] = {
    "state-namespace-exists": ("namespaces",),
    "no-other-run": ("leases.coordination.k8s.io", "configmaps"),
    "slot-free": ("leases.coordination.k8s.io",),
    "few-failures": ("configmaps",),
    "held-by-nobody-else": ("nodes",),
    "no-blocking-pod": ("pods",),
    "pool-stays": ("nodes", "leases.coordination.k8s.io"),
    "no-ghost": ("nodes", "leases.coordination.k8s.io"),
}


@pytest.mark.parametrize(("id_", "kind"), [(id_, kind) for id_, kinds in NEEDED.items() for kind in kinds])
def test_what_cant_be_read_blocks(id_: str, kind: str) -> None:
    (guard,) = [each for each in gates.NODE_GATES if each.id == id_]
    assert Around(missing={kind: LATE}).blocked(guard)
    assert Around(missing={kind: Inapplicable("not served")}).blocked(guard)


def test_which_flag_overrides_which_gate() -> None:
    every = (*gates.NODE_GATES, gates.window_open, gates.window_not_closed)
    assert {each.id: each.override for each in every if each.override} == {
        "few-failures": "--ignore-failures",
        "no-alert-fires": "--ignore-alerts",
        "no-blocking-pod": "--ignore-blocking-pods",
        "window-open": "--outside-window",
        "window-not-closed": "--outside-window",
    }


# Time


NIGHT = MaintenanceWindow(opens="22:00", closes="23:00", days=("mon",))


def test_without_any_window_a_big_change_is_blocked_and_a_small_one_is_not() -> None:
    assert Around().blocked(gates.window_open) == ["no maintenance window is configured"]
    assert Around().blocked(gates.window_not_closed) == []


@pytest.mark.parametrize("guard", [gates.window_open, gates.window_not_closed], ids=lambda guard: guard.id)
def test_outside_of_a_window_both_are_and_inside_neither(guard: Guard) -> None:
    (message,) = Around(policy={"windows": (NIGHT,)}).blocked(guard)
    assert message == "no maintenance window is open; the next one opens at Mon 2026-11-30 22:00 UTC"
    assert Around(policy={"windows": (NIGHT,)}, now=A_MOMENT.replace(hour=22)).blocked(guard) == []


def test_who_acts_outside_of_a_window_says_why() -> None:
    assert Around(options={"outside_window": True}).blocked(gates.reason_given) == [
        "--outside-window demands --reason"
    ]
    assert Around(options={"outside_window": True, "reason": ""}).blocked(gates.reason_given)
    assert Around(options={"outside_window": True, "reason": "fire"}).blocked(gates.reason_given) == []
    assert Around(options={"outside_window": False}).blocked(gates.reason_given) == []


# Alarms


def firing(*names: str, state: AlertState = AlertState.FIRING) -> Each[Any, Alert]:
    found = {name: Alert((("alertname", name),), state) for name in names}
    return Each.of(found)


def test_a_firing_alert_blocks_and_others_do_not() -> None:
    guard = gates.no_alert_fires
    assert Around(firing=firing("NodeDown", "Watchdog")).blocked(guard) == ["alerts fire: NodeDown"]
    assert Around(firing=firing("Watchdog", "InfoInhibitor")).blocked(guard) == []
    others = [each for each in AlertState if each is not AlertState.FIRING]
    assert others
    for state in others:
        assert Around(firing=firing("NodeDown", state=state)).blocked(guard) == []
    assert Around(firing=firing("NodeDown"), policy={"ignored_alerts": ("Node*",)}).blocked(guard) == []
    (many,) = Around(firing=firing(*(f"A{number:02}" for number in range(13)))).blocked(guard)
    assert many.endswith("A09 and 3 more")


def test_the_alert_that_a_drill_provokes_does_not_keep_anybody_from_going_on_with_it() -> None:
    guard, options = gates.no_alert_fires, {"expect_alert": "QueueStands"}
    assert Around(firing=firing("QueueStands"), options=options).blocked(guard) == []
    assert Around(firing=firing("QueueStands")).blocked(guard) == ["alerts fire: QueueStands"]
    others = Around(firing=firing("QueueStands", "NodeDown"), options=options).blocked(guard)
    assert others == ["alerts fire: NodeDown"]


def test_monitoring_that_hears_nothing_blocks_where_an_alert_is_expected_to_fire() -> None:
    """An Alertmanager that nobody talks to says that nothing fires, too."""
    expecting = {"expected_alerts": ("Watchdog",)}
    deaf = Around(firing=firing(), policy=expecting).blocked(gates.no_alert_fires)
    assert deaf == ["monitoring hears nothing: Watchdog should always fire"]
    assert Around(firing=firing("Watchdog"), policy=expecting).blocked(gates.no_alert_fires) == []
    assert Around(firing=firing()).blocked(gates.no_alert_fires) == []
    (unnamed,) = Around(policy=expecting).blocked(gates.no_alert_fires)
    assert unnamed == "it can't be told whether Watchdog fires: no monitoring was named"


def test_an_alertmanager_that_was_named_and_does_not_answer_blocks() -> None:
    (message,) = Around(firing=Unknown(Reason.UNREACHABLE, "refused", "alerts")).blocked(gates.no_alert_fires)
    assert message == "cannot be told whether no alert fires: alerts: unreachable: refused"
    gap: Each[Any, Alert] = Each({"x": LATE})
    assert Around(firing=gap).blocked(gates.no_alert_fires)


# Pods


def test_a_pod_that_was_named_as_blocking_blocks_where_it_is() -> None:
    def labelled(node: str = "gpu-1", phase: str = "Running") -> Around:
        pod = a_pod("db-1", node)
        pod["metadata"]["labels"] = {"app": "db"}
        pod["status"]["phase"] = phase
        return with_(pod, policy={"blocking_pods": ("app=db",)})

    assert labelled().blocked(gates.no_blocking_pod) == [
        "Pod team-a/db-1 is selected by app=db of runbooks.blockingPods"
    ]
    assert labelled("gpu-2").blocked(gates.no_blocking_pod) == []
    assert labelled(phase="Succeeded").blocked(gates.no_blocking_pod) == []
    assert Around(policy={"blocking_pods": ("app=db",)}).blocked(gates.no_blocking_pod) == []


# Others at work


@pytest.mark.parametrize(
    ("where", "mark", "held", "free"),
    [
        ("labels", "dgxc.nvidia.com/nvsentinel-state", "draining", "healthy"),
        ("labels", "nvidia.com/gpu-driver-upgrade-state", "cordon-required", "upgrade-done"),
        ("labels", "nvidia.com/gpu-driver-upgrade-state", "upgrade-failed", ""),
        ("annotations", "k8saas.nvidia.com/cordon-by", "x", None),
        ("annotations", "maintenance.nvidia.com/requestor", "x", None),
        ("labels", "remediation.medik8s.io/exclude", "x", None),
        ("annotations", "weave.works/kured-reboot-in-progress", "x", None),
        ("annotations", "kured.dev/kured-reboot-in-progress", "x", None),
    ],
)
def test_a_node_that_another_holds_is_left_alone(where: str, mark: str, held: str, free: str | None) -> None:
    def marked(value: str | None) -> Around:
        return on_the_node(lambda node: value is not None and node["metadata"][where].update({mark: value}))

    (message,) = marked(held).blocked(gates.held_by_nobody_else)
    assert message.startswith("Node gpu-1 is held by another: ")
    assert f"{mark}={held}" in message
    assert marked(free).blocked(gates.held_by_nobody_else) == []


@pytest.mark.parametrize(
    ("name", "cordoned", "held"),
    [
        ("gpuctl.dev/cordoned-by", True, True),
        ("gpuctl.dev/cordoned-by", False, False),
        ("gpuctl.dev/nvsentinel-kept-off-by", False, True),
        ("gpuctl.dev/drained-by", True, False),
        ("gpuctl.dev/mig-config-by", True, False),
    ],
)
def test_a_gpuctl_that_keeps_its_locks_elsewhere_is_known_by_its_marks(
    name: str, cordoned: bool, held: bool
) -> None:
    def marked(node: dict[str, Any]) -> None:
        node["metadata"]["annotations"][name] = "r7"
        node["spec"]["unschedulable"] = cordoned

    around = on_the_node(marked)
    found = around.blocked(gates.held_by_nobody_else)
    assert bool(found) is held
    assert all(f"{name}=r7, of which namespace {NAMESPACE} knows nothing" in each for each in found)
    around.run = "r7"
    assert around.blocked(gates.held_by_nobody_else) == []
    around.run = ""
    around.items.append(journal("r7", "gpu-1", state=Standing.ABANDONED))
    assert around.blocked(gates.held_by_nobody_else) == []


@pytest.mark.parametrize("owner", ["weave.works", "kured.dev"])
def test_what_kured_leaves_after_a_reboot_holds_nothing(owner: str) -> None:
    mark = f"{owner}/kured-most-recent-reboot-needed"
    past = on_the_node(lambda node: node["metadata"]["annotations"].update({mark: "2026-11-01T00:00:00Z"}))
    assert past.blocked(gates.held_by_nobody_else) == []


def test_a_lock_of_another_run_blocks_whatever_its_age() -> None:
    locked = with_(lease("r9", "gpuctl-node-gpu-1", "gpu-1"))
    (message,) = locked.blocked(gates.no_other_run)
    assert message == "gpu-1 is locked by run r9 of ben@desk since 2020-01-01T00:00:00.000000Z"
    locked.run = "r9"
    assert locked.blocked(gates.no_other_run) == []
    assert with_(lease("r9", "gpuctl-node-gpu-2", "gpu-2")).blocked(gates.no_other_run) == []
    foreign = lease("r9", "gpuctl-node-gpu-1", "gpu-1")
    del foreign["metadata"]["labels"]
    assert with_(foreign).blocked(gates.no_other_run) == []


def test_an_unfinished_journal_blocks_without_a_lock_too() -> None:
    open_ = journal("r9", "gpu-1")
    (message,) = with_(open_).blocked(gates.no_other_run)
    assert message == "run r9 (little) on gpu-1 is not finished: at release"
    assert len(with_(open_, lease("r9", "gpuctl-node-gpu-1", "gpu-1")).blocked(gates.no_other_run)) == 1
    assert with_(journal("r9", "gpu-2")).blocked(gates.no_other_run) == []
    for state in (Standing.FINISHED, Standing.UNDONE, Standing.ABANDONED):
        assert with_(journal("r9", "gpu-1", state=state)).blocked(gates.no_other_run) == []


def test_a_journal_that_cant_be_read_blocks() -> None:
    spoilt = journal("r9", "gpu-2")
    spoilt["data"]["run.json"] = "{"
    assert with_(spoilt).blocked(gates.no_other_run)
    assert with_(spoilt).blocked(gates.few_failures)


def test_a_ghost_is_told_of() -> None:
    ghost = with_(lease("r9", "gpuctl-node-gpu-1", "gpu-1", uid="earlier"))
    assert ghost.blocked(gates.no_ghost) == []
    assert ghost.noted(gates.no_ghost) == [
        "the lock of run r9 is of an earlier node of this name, which is gone; gpuctl unlock r9 removes it"
    ]
    assert ghost.blocked(gates.no_other_run)
    assert with_(lease("r9", "gpuctl-node-gpu-1", "gpu-1")).noted(gates.no_ghost) == []


# How much at once


def test_slots() -> None:
    taken = (lease("r8", "gpuctl-slot-0", "gpu-2"), lease("r9", "gpuctl-slot-1", "gpu-3"))
    assert with_(*taken).blocked(gates.slot_free) == [
        "2 runs are at work or unfinished, runbooks.maxNodes is 1"
    ]
    assert with_(*taken, policy={"max_nodes": 2}).blocked(gates.slot_free)
    assert with_(*taken, policy={"max_nodes": 3}).blocked(gates.slot_free) == []
    assert with_(*taken, policy={"max_nodes": 2}, run="r9").blocked(gates.slot_free) == []
    assert with_(lease("r8", "gpuctl-node-gpu-2", "gpu-2")).blocked(gates.slot_free) == []


HALF = {"max_pool_share": 0.5, "max_nodes": 3}


def test_a_share_of_the_pool_stays() -> None:
    def cordoned(*names: str) -> Items:
        items = calm()
        for each in items:
            if each["metadata"]["name"] in names:
                each["spec"]["unschedulable"] = True
        return items

    assert Around(policy=HALF).blocked(gates.pool_stays) == []  # 8 of 24
    assert Around(cordoned("gpu-1"), policy=HALF).blocked(gates.pool_stays) == []  # the target counts once
    (message,) = Around(cordoned("gpu-2"), policy=HALF).blocked(gates.pool_stays)
    assert "16 of 24 GPUs (gpu-1, gpu-2) of pool A100 would be out of service" in message
    assert Around(cordoned("gpu-2"), policy={"max_pool_share": 0.7}).blocked(gates.pool_stays) == []
    assert Around(policy={"max_pool_share": 0.3}).blocked(gates.pool_stays)


def test_what_others_have_locked_counts_as_out() -> None:
    locked = with_(lease("r9", "gpuctl-node-gpu-2", "gpu-2"), policy=HALF)
    assert locked.blocked(gates.pool_stays)
    locked.run = "r9"
    assert locked.blocked(gates.pool_stays) == []


def test_nodes_of_another_product_do_not_count_and_those_with_mig_do() -> None:
    def other(product: str) -> Around:
        around = Around(policy=HALF)
        for each in around.items:
            if each["metadata"]["name"] in ("gpu-2", "gpu-3"):
                each["metadata"]["labels"] |= {PRODUCT: product, COUNT: "56"}
        return around

    assert other("H100").blocked(gates.pool_stays)  # 8 of 8
    assert other("A100-MIG-1g.10gb").blocked(gates.pool_stays) == []  # 8 of 24


@pytest.mark.parametrize("count", ["", "0"])
def test_of_a_pool_without_gpus_the_share_cant_be_told(count: str) -> None:
    around = Around()
    for each in around.items:
        each["metadata"].get("labels", {}).update(
            {COUNT: count} if PRODUCT in each["metadata"].get("labels", {}) else {}
        )
    (message,) = around.blocked(gates.pool_stays)
    assert message == "no node of pool A100 offers GPUs, so the share can't be told"


def test_a_node_without_a_pool_is_not_told_either() -> None:
    (message,) = on_the_node(lambda node: node["metadata"]["labels"].pop(PRODUCT)).blocked(gates.pool_stays)
    assert message == f"Node gpu-1 has no label {PRODUCT}, so its pool can't be told"
    (message,) = Around(policy={"pool_label": "rack"}).blocked(gates.pool_stays)
    assert "no label rack" in message


def test_a_node_that_does_not_exist_blocks() -> None:
    for guard in (gates.held_by_nobody_else, gates.pool_stays):
        assert Around(target="gpu-l").blocked(guard)


# The breaker


def test_the_breaker() -> None:
    bad = [journal("r1", outcome=Outcome.FAILED), journal("r2", outcome=Outcome.TIMED_OUT)]
    assert with_(*bad).blocked(gates.few_failures) == ["2 runs failed within 24 h: r1, r2"]
    assert with_(bad[0]).blocked(gates.few_failures) == []
    assert with_(bad[0], journal("r2", outcome=Outcome.CANCELLED)).blocked(gates.few_failures) == []
    assert with_(bad[0], journal("r2", outcome=Outcome.REVERTED)).blocked(gates.few_failures) == []
    how = {"stopped": {"outcome": "failed", "why": "x"}}
    taken_back = journal("r2", outcome=Outcome.REVERTED, result=how)
    assert with_(bad[0], taken_back).blocked(gates.few_failures) == ["2 runs failed within 24 h: r1, r2"]
    assert (
        with_(bad[0], journal("r2", hours_ago=25, outcome=Outcome.FAILED)).blocked(gates.few_failures) == []
    )


def test_a_rolling_change_and_the_run_that_failed_in_it_are_one_failure() -> None:
    roll = journal("r2", members=(Member(target="gpu-9", run="r1"),), outcome=Outcome.FAILED)
    assert with_(journal("r1", outcome=Outcome.FAILED), roll).blocked(gates.few_failures) == []


# The run itself


def test_the_state_namespace() -> None:
    nowhere = Around([each for each in calm() if each["kind"] != "Namespace"])
    (message,) = nowhere.blocked(gates.state_namespace_exists)
    assert message == f"namespace {NAMESPACE} does not exist: locks and journals live there"
    assert copy.copy(nowhere).now.tzinfo is UTC
