"""The cases in which somebody else is at work on the node, or the plan is not what it should be."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpuctl.nvidia.node import CONFIG
from gpuctl.runbook.drain.cordon import CORDONED_BY
from gpuctl.runbook.mig.facts import SET_BY
from gpuctl.runbook.plan import from_text, sealed, to_text
from gpuctl.runbook.records import Outcome, Standing
from tests.cluster.bed import stages
from tests.cluster.bed.mig_manager import Gate
from tests.cluster.lenient import LEASE_SECONDS

from .cases import TURNED, Case, Play, killed
from .player import Program
from .stage import ASKED, Scene
from .strike import Order

FAILED, BLOCKED = 4, 1
# A limit that is to run out; long enough for the other steps, and for a resume, which have the same one.
SOON = "--change-timeout=45"


# What plays use


def ended(program: Program, code: int, *words: str) -> None:
    """With this exit code, and with these words."""
    found = program.ended()
    assert found == code, (found, program.said[-900:])
    for word in words:
        assert word in program.said, f"{word!r} is not said: {program.said[-1500:]}"


def at_standstill(scene: Scene, at: str, *flags: str) -> Program:
    """A run that stands still before this write."""
    plan = scene.planned(*flags)
    program = scene.apply(Order(log="", what="stop", at=(at,)), plan)
    program.stopped()
    return program


def go(program: Program) -> None:
    program.send(signal.SIGCONT)


def evicting(scene: Scene, times: int = 1) -> None:
    """Until gpuctl has asked for so many evictions."""
    asked = lambda: sum(each.subresource == "eviction" for each in scene.written()) >= times  # noqa: E731
    scene.wait(asked, "evictions", 120)


def tell_pod(scene: Scene, app: str, sigterm: str | None, grace: int = 30) -> None:
    """How the pods of this app take their end."""
    for pod in scene.running(app):
        path = f"/api/v1/namespaces/{scene.slot.space}/pods/{pod['metadata']['name']}"
        scene.api.patch(path, {"metadata": {"annotations": {stages.SIGTERM: sigterm}}})


def release(scene: Scene, app: str) -> None:
    """Pods that hang in their end may go."""
    for pod in scene.work.pods(app):
        path = f"/api/v1/namespaces/{scene.slot.space}/pods/{pod['metadata']['name']}"
        with suppress(Exception):
            scene.api.patch(path, {"metadata": {"annotations": {stages.SIGTERM: None}}})


def configure(scene: Scene, config: str) -> None:
    """As another does it with kubectl."""
    scene.api.patch(f"/api/v1/nodes/{scene.node.name}", {"metadata": {"labels": {CONFIG: config}}})


def cordon(scene: Scene, on: bool | None) -> None:
    scene.api.patch(f"/api/v1/nodes/{scene.node.name}", {"spec": {"unschedulable": on}})


@contextmanager
def in_the_middle(scene: Scene) -> Iterator[tuple[Program, Gate]]:
    """MIG manager stands still before it changes the GPUs, and gpuctl follows it."""
    gate = scene.node.stop_before("apply")
    program = scene.apply()
    try:
        gate.reached(180)
        yield program, gate
    finally:
        gate.open()


def intruder(scene: Scene) -> str:
    """A GPU pod that is put on the node past the scheduler."""
    scene.work.pod("intruder", node=scene.node.name, bound=True, asks={ASKED[scene.old]: 1})
    scene.wait(lambda: scene.running("intruder"), "the intruder runs")
    return "intruder"


def remove_pod(scene: Scene, name: str) -> None:
    path = f"/api/v1/namespaces/{scene.slot.space}/pods/{name}"
    scene.api.delete(path, gracePeriodSeconds="0")


# Pods and budgets


def a_budget_at_zero(scene: Scene) -> str:
    scene.work.budget("web", max_unavailable=0)
    program = scene.apply(None, scene.planned("--wait-for-budgets"))
    evicting(scene, 3)
    assert not [name for name in scene.evictions() if name.startswith("web")]
    assert scene.leases()
    scene.work.budget("web", max_unavailable=1)
    ended(program, 0, "web")
    scene.is_done()
    return "succeeded"


def a_pod_that_ignores_its_end(scene: Scene) -> str:
    """It goes when its time is over, and not before."""
    tell_pod(scene, "web", stages.IGNORED)
    ended(scene.apply(), 0)
    scene.is_done()
    return "succeeded"


def a_pod_that_never_ends(scene: Scene) -> str:
    tell_pod(scene, "web", stages.HANGS)
    plan = scene.planned("--grace-period=5", "--drain-timeout=12")
    ended(scene.apply(None, plan), FAILED, "timed-out", "ending")
    scene.is_named()
    assert scene.raw()["spec"]["unschedulable"]
    release(scene, "web")
    return scene.settle()


def a_pod_behind_the_cordon(scene: Scene) -> str:
    """While it is drained: the plan allows no pod without an owner, and it is not touched."""
    tell_pod(scene, "web", stages.HANGS)
    program = scene.apply()
    evicting(scene)
    name = intruder(scene)
    ended(program, FAILED, "which the plan does not allow")
    scene.is_named()
    assert scene.running(name)
    remove_pod(scene, name)
    release(scene, "web")
    return scene.settle()


def a_pod_after_the_drain(scene: Scene) -> str:
    """Past all looks: then MIG manager finds the GPU in use, and says so; nobody evicts the pod."""
    program = at_standstill(scene, TURNED)
    name = intruder(scene)
    go(program)
    ended(program, FAILED, "failed to apply")
    scene.is_named()
    assert scene.running(name)
    remove_pod(scene, name)
    scene.wait(lambda: not scene.work.pods(name), "the intruder is gone")
    scene.node.restart_manager()
    return scene.settle()


def a_stateful_pod_elsewhere(scene: Scene) -> str:
    """Between look and eviction it comes back on another node, under its name: it is not touched."""
    (gone,) = scene.running("db")
    program = at_standstill(scene, "evict db")
    remove_pod(scene, "db-0")
    there = scene.another("db", gone)
    assert there["spec"]["nodeName"] != scene.node.name
    go(program)
    ended(program, 0)
    (still,) = scene.running("db")
    assert still["metadata"]["uid"] == there["metadata"]["uid"]
    assert "db-0" not in scene.evictions()
    scene.is_done()
    return "succeeded"


# Others at work


def another_cordon(scene: Scene) -> str:
    """Between intent and act: it is another's, and stays."""
    program = at_standstill(scene, "cordon")
    cordon(scene, True)
    go(program)
    ended(program, 0)
    assert CORDONED_BY not in scene.raw()["metadata"]["annotations"]
    scene.is_done(cordoned=True)
    cordon(scene, None)
    return "succeeded"


def another_uncordons(scene: Scene) -> str:
    with in_the_middle(scene) as (program, gate):
        cordon(scene, None)
        ended(program, FAILED, "somebody else is at work")
        gate.open()
    assert not scene.raw()["spec"].get("unschedulable")
    scene.node.settled(scene.new)
    return _given_up(scene)


def _given_up(scene: Scene) -> str:
    """What the run changed stays, and is no business of its own any more."""
    ended(scene.go_on("unlock"), 0)
    run = scene.journal()
    assert run is not None
    assert run.state is Standing.ABANDONED
    assert not scene.leases()
    scene.within_bounds()
    _unmarked(scene)
    return "unlocked"


def _unmarked(scene: Scene) -> None:
    """As a person does with kubectl."""
    marks = {CORDONED_BY: None, SET_BY: None}
    patch = {"spec": {"unschedulable": None}, "metadata": {"annotations": marks}}
    scene.api.patch(f"/api/v1/nodes/{scene.node.name}", patch)


def another_label(scene: Scene) -> str:
    """It stops the run, and is not taken back by an undo."""
    with in_the_middle(scene) as (program, gate):
        configure(scene, "all-2g.20gb")
        ended(program, FAILED, f"somebody else set {CONFIG}")
        gate.open()
    scene.is_named()
    undo = scene.go_on("undo")
    ended(undo, 0)
    run = scene.journal()
    assert run is not None
    assert run.outcome is Outcome.REVERTED
    raw = scene.raw()
    assert raw["metadata"]["labels"][CONFIG] == "all-2g.20gb"
    assert not raw["spec"].get("unschedulable")
    assert not scene.leases()
    scene.within_bounds()
    configure(scene, scene.old)
    scene.node.settled(scene.old)
    return "undone"


def two_at_once(scene: Scene) -> str:
    """The same plan, applied twice at the same moment: one does it, the other is refused."""
    plan = scene.planned()
    both = [scene.apply(None, plan) for _ in range(2)]
    codes = sorted(each.ended() for each in both)
    assert codes == [0, BLOCKED], (codes, [each.said[-500:] for each in both])
    scene.is_done()
    return "one succeeded"


def two_resume_at_once(scene: Scene) -> str:
    killed(scene, TURNED, after=True)
    both = [scene.go_on("resume") for _ in range(2)]
    codes = sorted(each.ended() for each in both)
    assert codes[0] == 0, (codes, [each.said[-500:] for each in both])
    assert codes[1] in (BLOCKED, FAILED), (codes, [each.said[-500:] for each in both])
    scene.is_done()
    return "one succeeded"


def another_run_while_unfinished(scene: Scene) -> str:
    """It is refused, though the lock's time is over long ago, and evicts nobody."""
    plan = scene.planned()
    killed(scene, "journal: Cordon done", after=True)
    time.sleep(LEASE_SECONDS + 1)
    ended(scene.apply(None, plan), BLOCKED, "is locked by run")
    assert not scene.evictions()
    return scene.settle()


# Clocks


def alive_with_a_wrong_clock(seconds: float) -> Play:
    """Its stamps are hours off, but they change: it is not taken for dead."""

    def play(scene: Scene) -> str:
        gate = scene.node.stop_before("apply")
        program = scene.apply(Order(log="", clock=seconds))
        gate.reached(180)
        try:
            ended(scene.go_on("resume"), BLOCKED, "is being worked on")
            ended(scene.go_on("unlock"), BLOCKED, "is being worked on")
        finally:
            gate.open()
        ended(program, 0)
        scene.is_done()
        return "succeeded"

    return play


def dead_with_a_wrong_clock(seconds: float) -> Play:
    """Its last stamp is hours off: it is taken for dead as soon as any other."""

    def play(scene: Scene) -> str:
        killed(scene, TURNED, after=True)
        then = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for lease in scene.leases():
            path = f"{scene.leases_path}/{lease['metadata']['name']}"
            scene.api.patch(path, {"spec": {"renewTime": then}})
        return scene.settle()

    return play


# The node


def node_deleted(scene: Scene) -> str:
    program = at_standstill(scene, TURNED)
    scene.api.delete(f"/api/v1/nodes/{scene.node.name}")
    go(program)
    ended(program, FAILED)
    assert "succeeded" not in program.said
    ended(scene.go_on("unlock"), 0)
    assert not scene.leases()
    scene.within_bounds()
    scene.replace()
    return "unlocked"


def node_replaced(scene: Scene) -> str:
    """Another of the same name: none of its business."""
    program = at_standstill(scene, TURNED)
    scene.replace()
    since = datetime.now(UTC)
    go(program)
    ended(program, FAILED)
    raw = scene.raw()
    assert not raw["spec"].get("unschedulable")
    assert not [name for name in raw["metadata"].get("annotations", {}) if name.startswith("gpuctl.dev/")]
    patched = [each for each in scene.written(since) if each.resource == "nodes" and each.code < 300]
    assert not patched
    ended(scene.go_on("resume"), FAILED, "uid")
    ended(scene.go_on("unlock"), 0)
    assert not scene.leases()
    return "unlocked"


def node_rebooted(scene: Scene) -> str:
    boot = scene.node.boot_id
    with in_the_middle(scene) as (program, gate):
        scene.node.reboot()
        gate.open()
        ended(program, 0)
    assert scene.node.boot_id != boot
    scene.slot.plans.clear()
    scene.is_done()
    return "succeeded"


def node_not_ready(scene: Scene) -> str:
    with in_the_middle(scene) as (program, gate):
        scene.node.stop_kubelet()
        time.sleep(6)
        assert program.process.poll() is None
        gate.open()
        time.sleep(3)
        scene.node.start_kubelet()
        ended(program, 0)
    scene.is_done()
    return "succeeded"


# Plans


def plan_stale(scene: Scene) -> str:
    """Somebody has cordoned the node since."""
    plan = scene.planned()
    cordon(scene, True)
    ended(scene.apply(None, plan), BLOCKED, "cordoned before")
    assert scene.raw()["spec"]["unschedulable"]
    cordon(scene, None)
    scene.is_untouched()
    return "refused"


def plan_stale_node(scene: Scene) -> str:
    """Another node of the same name is there since."""
    plan = scene.planned()
    scene.replace()
    ended(scene.apply(None, plan), BLOCKED, "another object of the same name")
    assert scene.journal() is None
    assert not scene.leases()
    assert not scene.evictions()
    assert not scene.raw()["spec"].get("unschedulable")
    return "refused"


def plan_beyond(scene: Scene) -> str:
    """There are more pods than the plan allows to evict."""
    plan = scene.planned()
    name = intruder(scene)
    ended(scene.apply(None, plan), BLOCKED)
    assert scene.running(name)
    remove_pod(scene, name)
    scene.is_untouched()
    return "refused"


def _rewritten(scene: Scene, change: Any) -> Path:
    plan = scene.planned()
    file = plan.with_suffix(".other.json")
    file.write_text(change(plan.read_text()))
    return file


def plan_foreign(scene: Scene) -> str:
    """Whole, but of another cluster."""
    import msgspec

    def foreign(text: str) -> str:
        plan = from_text(text, "plan")
        return to_text(
            sealed(msgspec.structs.replace(plan, cluster=msgspec.structs.replace(plan.cluster, uid="b7")))
        )

    ended(scene.apply(None, _rewritten(scene, foreign)), BLOCKED, "the plan is for cluster")
    scene.is_untouched()
    return "refused"


def plan_edited(scene: Scene) -> str:
    """Somebody allows more evictions, in an editor."""

    def edited(text: str) -> str:
        plan = json.loads(text)
        plan["targets"][0]["bounds"]["evictions"] = 99
        return json.dumps(plan)

    ended(scene.apply(None, _rewritten(scene, edited)), 2, "was edited")
    scene.is_untouched()
    return "refused"


def plan_too_old(scene: Scene) -> str:
    plan = scene.planned("--valid-for=1s")
    time.sleep(2)
    ended(scene.apply(None, plan), BLOCKED, "was valid until")
    scene.is_untouched()
    return "refused"


def plan_unexpected(scene: Scene) -> str:
    """Another than the one that was reviewed."""
    program = scene.apply(None, scene.planned(), "--expect-digest=sha256:0")
    ended(program, BLOCKED, "not sha256:0")
    scene.is_untouched()
    return "refused"


# MIG manager


def manager_absent(scene: Scene) -> str:
    """Before the plan: it is blocked, and a plan of before is refused."""
    plan = scene.planned()
    scene.node.remove_manager()
    try:
        ended(scene.apply(None, plan), BLOCKED)
    finally:
        scene.node.restore_manager()
    scene.node.settled(scene.old)
    scene.is_untouched()
    return "refused"


def manager_goes(scene: Scene) -> str:
    """In the middle: no success without it."""
    program = at_standstill(scene, TURNED, SOON)
    scene.node.remove_manager()
    go(program)
    ended(program, FAILED, "timed-out")
    scene.is_named()
    scene.node.restore_manager()
    return scene.settle()


def manager_wedged(scene: Scene) -> str:
    scene.node.wedge_at("wait-operands")
    program = scene.apply(None, scene.planned(SOON))
    ended(program, FAILED, "wedged", "delete pod")
    scene.is_named()
    scene.node.restart_manager()
    return scene.settle()


def manager_fails(step: str, *, back: bool, paused: bool = False) -> Play:
    """At this step; the operator undoes, or lets it try again."""

    def play(scene: Scene) -> str:
        scene.node.fail_at(step, paused=paused)
        ended(scene.apply(), FAILED, "failed to apply")
        scene.is_named()
        assert scene.raw()["spec"]["unschedulable"]
        if not back:
            scene.node.restart_manager()
        return scene.settle(back=back)

    return play


def manager_lies(how: str) -> Play:
    """It says success over what is not so: no success of gpuctl's."""

    def play(scene: Scene) -> str:
        scene.node.lie(how, [["7g.80gb"]] if how == "wrong" else ())
        program = scene.apply(None, scene.planned(SOON))
        ended(program, FAILED)
        assert "succeeded: run" not in program.said
        scene.is_named()
        scene.node.honest()
        if how in ("capacity", "labels"):
            app = "nvidia-device-plugin-daemonset" if how == "capacity" else "gpu-feature-discovery"
            scene.node.delete_pods(app)
            return scene.settle()
        return scene.settle(back=True)

    return play


def manager_slow(scene: Scene) -> str:
    scene.node.slow(20)
    ended(scene.apply(), 0)
    scene.node.honest()
    scene.is_done()
    return "succeeded"


def _named(group: str, **plays: Play) -> Iterator[Case[Scene]]:
    for name, play in plays.items():
        yield Case(group, name.replace("_", " "), play, single=True)


def disturbances() -> Iterator[Case[Scene]]:
    """All of them."""
    hour = 3600.0
    yield from _named(
        "pods and budgets",
        a_PodDisruptionBudget_at_zero_then_released=a_budget_at_zero,
        a_pod_that_ignores_SIGTERM=a_pod_that_ignores_its_end,
        a_pod_that_never_ends=a_pod_that_never_ends,
        a_new_GPU_pod_bound_behind_the_cordon=a_pod_behind_the_cordon,
        a_new_GPU_pod_after_the_drain=a_pod_after_the_drain,
        a_StatefulSet_pod_of_the_same_name_on_another_node=a_stateful_pod_elsewhere,
    )
    yield from _named(
        "others at work",
        a_cordon_between_intent_and_act=another_cordon,
        an_uncordon_in_the_middle=another_uncordons,
        the_label_changed=another_label,
        two_operators_at_once=two_at_once,
        two_resume_at_once=two_resume_at_once,
        another_run_while_one_is_unfinished=another_run_while_unfinished,
    )
    yield from _named(
        "clock skew",
        alive_an_hour_ahead=alive_with_a_wrong_clock(hour),
        alive_an_hour_behind=alive_with_a_wrong_clock(-hour),
        dead_with_a_stamp_an_hour_ahead=dead_with_a_wrong_clock(hour),
        dead_with_a_stamp_an_hour_behind=dead_with_a_wrong_clock(-hour),
    )
    yield from _named(
        "the node",
        deleted=node_deleted,
        replaced_under_the_same_name=node_replaced,
        rebooted=node_rebooted,
        NotReady=node_not_ready,
    )
    yield from _named(
        "the plan",
        stale_as_the_node_was_cordoned=plan_stale,
        stale_as_the_node_was_replaced=plan_stale_node,
        beyond_its_bounds=plan_beyond,
        foreign=plan_foreign,
        edited=plan_edited,
        too_old=plan_too_old,
        of_another_digest=plan_unexpected,
    )
    yield from _named(
        "MIG manager",
        absent=manager_absent,
        goes_in_the_middle=manager_goes,
        wedged=manager_wedged,
        fails_and_the_run_is_undone=manager_fails("apply", back=True),
        fails_once_and_is_started_anew=manager_fails("apply", back=False),
        fails_and_leaves_operands_paused=manager_fails("apply", back=False, paused=True),
        success_without_touching_a_GPU=manager_lies("unchanged"),
        success_over_another_geometry=manager_lies("wrong"),
        success_with_the_capacity_of_before=manager_lies("capacity"),
        success_with_the_labels_of_before=manager_lies("labels"),
        twenty_times_slower=manager_slow,
    )
