"""A rolling change over many nodes: one fails in the middle, another process goes on and ends it."""

from __future__ import annotations

from datetime import UTC, datetime

from gpuctl.nvidia.node import CONFIG
from gpuctl.runbook.records import Outcome, Run, Standing

from .stage import HALVES, Scene, Stage

LABEL = "gpuctl-bed/rolling"
NODES, AT_ONCE = 20, 4


def rolling(stage: Stage, name: str = "a rolling change") -> str:
    """Over nodes of the stage that are sliced alike; no more than some at once."""
    scene = Scene(stage, stage.slots[0], name)
    nodes = [slot.node for slot in stage.slots[:NODES]]
    for node in nodes:
        labels = {LABEL: "", CONFIG: "all-1g.10gb"}
        scene.api.patch(f"/api/v1/nodes/{node.name}", {"metadata": {"labels": labels}})
    for node in nodes:
        node.settled("all-1g.10gb")
    broken = sorted(nodes, key=lambda node: node.name)[len(nodes) // 2]
    broken.fail_at("apply")
    plan = scene.slot.folder / "rolling.json"
    made = scene.start("plan", "mig-reconfigure", "-l", LABEL, "--config=all-3g.40gb", "--change-timeout=120",
                       f"--max-unavailable={AT_ONCE}", f"--out={plan}")  # fmt: skip
    assert made.ended() == 0, made.said[-900:]

    first = scene.start("apply", str(plan), "--yes")
    assert first.ended(900) == 4, first.said[-900:]
    assert broken.name in first.said
    done = [node for node in nodes if node.layout == [HALVES]]
    untouched = [node for node in nodes if node.label(CONFIG) == "all-1g.10gb"]
    assert len(done) + len(untouched) == len(nodes) - 1, "no other node is in between"
    assert untouched, "it stopped at the failure"
    run = _roll(scene)
    assert run.state is Standing.UNFINISHED
    assert sum(each.outcome is Outcome.SUCCEEDED for each in run.members) == len(done)
    assert [each.target for each in run.members if each.outcome is Outcome.FAILED] == [broken.name]

    broken.restart_manager()
    second = scene.start("resume", run.id)
    assert second.ended(900) == 0, second.said[-900:]
    run = _roll(scene)
    assert (run.state, run.outcome) == (Standing.FINISHED, Outcome.SUCCEEDED)
    assert all(each.outcome is Outcome.SUCCEEDED for each in run.members)
    assert not scene.leases()
    for node in nodes:
        raw = scene.api.get(f"/api/v1/nodes/{node.name}")
        assert node.layout == [HALVES]
        assert not raw["spec"].get("unschedulable")
    _at_most(scene, AT_ONCE)
    scene.clear()
    return (
        f"{len(nodes)} nodes, at most {AT_ONCE} at once: MIG manager failed on one in the middle, and the "
        f"change stopped with {len(done)} done and {len(untouched)} not begun. Another process resumed it "
        "once MIG manager was started anew, and all nodes were changed, verified and in service."
    )


def _roll(scene: Scene) -> Run:
    (roll,) = [each for each in scene.journals() if each.members]
    return roll


def _at_most(scene: Scene, count: int) -> None:
    """By the journals: never more nodes out of service than was allowed."""
    moments: list[tuple[datetime, int]] = []
    for run in scene.journals():
        if not run.members:
            moments += [(run.started_at, 1), (run.finished_at or datetime.now(UTC), -1)]
    out = 0
    for _, step in sorted(moments):
        out += step
        assert out <= count, f"{out} nodes at once"
