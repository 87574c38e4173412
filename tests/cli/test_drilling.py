"""`gpuctl check --drill`: what can't be meant, what is asked, and what came of it."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuctl.audit.judge import Verdict, judge
from gpuctl.audit.policy import Policy
from gpuctl.checks.flavor_impact.drill import drilled_loss
from gpuctl.cli.acting import Acting
from gpuctl.cli.border import Stop
from gpuctl.cli.drilling import Drilling, drilled
from gpuctl.cli.planning import Wanted, make_plan, targets
from gpuctl.facts.gather import gather
from gpuctl.kueue.drills import ASKED
from gpuctl.runbook.drain.runbook import RUNBOOK as DRAIN
from gpuctl.runbook.flavors.drill import RUNBOOK
from gpuctl.runbook.plan import to_text
from gpuctl.runbook.planning import Task
from tests.builders.queues import healthy
from tests.checks.flavor_impact.worlds import journal
from tests.cluster import gpuctl
from tests.runbook.flavors.drill_world import DrillWorld
from tests.runbook.little import NAMESPACE, Quick
from tests.runbook.memory_writer import Call

HEALTHY = "examples/healthy"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--from", HEALTHY, "--drill"), "--from reads none"),
        (("-n", "team-a", "--drill"), "-n stays within a namespace"),
        (("--read-only", "--drill"), "exclude each other"),
        (("--yes",), "--yes needs --drill-plan FILE"),
        (("--drill",), "there is no terminal"),
        (("--drill-plan", "plan.json"), "there is no terminal"),
    ],
)
def test_what_can_t_be_meant_gets_a_sentence(arguments: tuple[str, ...], says: str) -> None:
    result = gpuctl.run("check", "flavor-impact", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert says in result.stderr


def a_site(world: DrillWorld, cluster: str = "cluster-1") -> Any:
    """A site over a cluster in memory."""
    acting = Acting(Policy(), NAMESPACE, "", "", 60)
    return SimpleNamespace(
        acting=acting,
        source=SimpleNamespace(cluster_uid=cluster, name="memory", server_version=""),
        user="ana",
        looks=lambda: world.look_with,
        task=lambda book, name, options: Task(book, name, options, acting.policy, NAMESPACE),
        crew=lambda _stop: world.crew(stop=Quick()),
    )


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))


def stored(world: DrillWorld, path: Path, **options: Any) -> Drilling:
    path.write_text(to_text(make_plan(a_site(world), Wanted(RUNBOOK, options=options))))
    return Drilling(wanted=True, plan=path, yes=True)


def test_it_is_confirmed_and_carried_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = DrillWorld()
    typed(monkeypatch, "canary")
    assert drilled(Drilling(wanted=True, plan=None, yes=False), a_site(world)) == ""
    assert [each.outcome for each in world.journals.values()] == ["succeeded"]
    assert world.canaries == []
    told = capsys.readouterr()
    assert told.out == ""  # the report's alone
    assert "leaves all other ClusterQueues (1) and ResourceFlavors (1) as they are" in told.err


def test_one_that_is_not_confirmed_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = DrillWorld()
    typed(monkeypatch, "yes")
    assert drilled(Drilling(wanted=True, plan=None, yes=False), a_site(world)) == "was not confirmed"
    assert world.writer.calls == []


def test_one_that_is_blocked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = DrillWorld()
    world.items[:] = [each for each in world.items if each["metadata"]["name"] != NAMESPACE]
    typed(monkeypatch, "canary")
    came = drilled(Drilling(wanted=True, plan=None, yes=False), a_site(world))
    assert came.startswith("was refused: ")
    assert "does not exist" in came
    assert world.writer.calls == []


def test_a_stored_plan(tmp_path: Path) -> None:
    world = DrillWorld()
    drilling = stored(world, tmp_path / "plan.json", force_missing=True)
    assert drilled(drilling, a_site(world)) == ""
    (run,) = world.journals.values()
    assert run.result["inactiveReason"] == "FlavorNotFound"


def test_a_stored_plan_of_another_cluster_is_refused(tmp_path: Path) -> None:
    world = DrillWorld()
    drilling = stored(world, tmp_path / "plan.json")
    assert "the plan is for cluster memory" in drilled(drilling, a_site(world, "cluster-2"))
    assert world.writer.calls == []


def test_one_that_fails_says_why_and_how_to_clean_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = DrillWorld()
    drilling = stored(world, tmp_path / "plan.json")
    world.writer.forgets = "evicts"
    came = drilled(drilling, a_site(world))
    assert came.startswith("ended as failed (run ")
    assert "the flavor goes" in came
    assert "gpuctl undo" in capsys.readouterr().err


def test_one_that_is_interrupted_ends_the_whole_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = DrillWorld()
    drilling = stored(world, tmp_path / "plan.json")
    stop, site = Quick(), a_site(world)
    site.crew = lambda _stop: world.crew(stop=stop)

    def hears(call: Call) -> None:
        if call.verb == "delete":
            stop.set()

    world.writer.before = hears
    with pytest.raises(Stop, match="was interrupted, and nothing was checked") as stopped:
        drilled(drilling, site)
    assert stopped.value.code == 130
    assert "gpuctl undo" in capsys.readouterr().err


def test_a_plan_of_another_runbook_is_no_drill(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("{}")
    with pytest.raises(Stop, match="no plan file"):
        drilled(Drilling(wanted=False, plan=path, yes=True), a_site(DrillWorld()))


def test_the_one_target_need_not_be_named() -> None:
    site = a_site(DrillWorld())
    assert targets(site, Wanted(RUNBOOK)) == targets(site, Wanted(RUNBOOK, "canary")) == ("canary",)
    for target, selector in (("team", ""), ("", "pool=a")):
        with pytest.raises(Stop, match="one target, canary"):
            targets(site, Wanted(RUNBOOK, target, selector))
    with pytest.raises(Stop, match="name one target"):
        targets(site, Wanted(DRAIN))


@pytest.mark.parametrize(
    ("last", "asked", "verdict"),
    [
        ("succeeded", "was refused: no", Verdict.UNKNOWN),
        ("succeeded", "", Verdict.PASS),
        ("failed", "ended as failed", Verdict.FAIL),
    ],
)
def test_a_drill_that_was_asked_for_and_refused_is_a_proof_that_failed(
    last: str, asked: str, verdict: Verdict
) -> None:
    world = healthy()
    journal(last)(world)
    judged = judge(drilled_loss, gather(drilled_loss.needs, world.reader(), {ASKED: asked}))
    assert judged.verdict is verdict
    assert all(f"the drill that was asked for {asked}" in str(each.state) for each in judged.gaps)
    assert bool(judged.gaps) == bool(asked)
