"""`gpuctl plan`: shows, stores, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from gpuctl.runbook.plan import from_text
from tests.cli.little import Desk
from tests.cli.program import gpuctl
from tests.runbook.little import VALUE, World, a_cluster
from tests.schemas import FOLDER


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Desk:
    return Desk(World(), monkeypatch, capsys, tmp_path)


def test_a_plan_that_can_be_applied(desk: Desk) -> None:
    result = desk.gpuctl("plan", "little", "gpu-1", "--reason", "spring", "--out", "change.json")
    assert result.code == 0, result.all
    assert not desk.world.writer.calls
    assert "gpu-1: old -> new" in result.out
    assert "4. change the value of gpu-1 to new" in result.out
    assert "at most 2 evictions, in team-a, of pods of ReplicaSet" in result.out
    assert "undo: the old value" in result.out
    plan = from_text((desk.folder / "change.json").read_text(), "x")
    assert plan.digest in result.out
    assert plan.options == {"to": "new", "force": False, "skip": [], "reason": "spring"}
    assert (plan.reason, plan.cluster.uid, plan.planner.user) == ("spring", "cluster-1", "ana")


def test_a_plan_that_is_blocked_is_stored_and_exits_with_1(desk: Desk) -> None:
    result = desk.gpuctl("plan", "little", "gpu-l", "--out", "change.json")
    assert result.code == 1
    assert "blocked: " in result.out
    assert "no override" in result.out
    assert (desk.folder / "change.json").exists()


def test_json_is_the_plan_in_ascii(desk: Desk) -> None:
    desk.world.node()["metadata"]["annotations"][VALUE] = "a\u202eb"
    result = desk.gpuctl("plan", "little", "gpu-1", "-o", "json")
    assert result.out.isascii()
    schema = json.loads((FOLDER / "plan.v1.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(result.out), schema)
    assert from_text(result.out, "x").targets[0].preconditions == {"value": "a\u202eb"}


def test_what_a_cluster_says_is_escaped(desk: Desk) -> None:
    desk.world.items.append({**a_cluster("\x1b[2Jevil")[1]})
    result = desk.gpuctl("plan", "little", "\x1b[2Jevil")
    assert "\x1b" not in result.all
    assert "\\x1b[2Jevil" in result.out


def test_options_of_the_runbook_are_flags(desk: Desk) -> None:
    result = desk.gpuctl(
        "plan", "little", "gpu-1", "--to", "blue", "--skip", "a", "--skip", "b", "--force", "-o", "json"
    )
    options = json.loads(result.out)["options"]
    assert options == {"to": "blue", "force": True, "skip": ["a", "b"], "reason": ""}


def test_several_by_their_labels(desk: Desk) -> None:
    desk.world = World(a_cluster("gpu-1", "gpu-2", "gpu-3"))
    for name in ("gpu-1", "gpu-3"):
        desk.world.node(name)["metadata"]["labels"]["pool"] = "a"
    result = desk.gpuctl("plan", "little", "-l", "pool=a", "--max-unavailable", "2")
    assert result.code == 0, result.all
    assert "little pool=a: 2 targets, 2 at once" in result.out
    assert "gpu-2" not in result.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("little",), "name one target, or several nodes by --selector"),
        (("little", "gpu-1", "-l", "a=b"), "name one target, or several nodes by --selector"),
        (("little", "-l", "pool=none"), "no node has the labels pool=none"),
        (("little", "-l", "=="), "--selector: "),
        (("little", "gpu-1", "-o", "yaml"), "--output is text or json, not 'yaml'"),
        (("litle", "gpu-1"), "there is no runbook 'litle'; there are device-plugin-restart, drain"),
        (("little", "gpu-1", "--frob"), "No such option"),
        (("little", "gpu-1", "--valid-for", "soon"), "soon"),
        (("little", "gpu-1", "--out", "no/such/folder/x"), "cannot write"),
        (("little", "gpu-1", "--max-unavailable", "0"), "max-unavailable"),
    ],
)
def test_usage(desk: Desk, arguments: tuple[str, ...], says: str) -> None:
    result = desk.gpuctl("plan", *arguments)
    assert result.code == 2, result.all
    assert says in result.all
    assert not desk.world.writer.calls


def test_without_a_cluster_nothing_can_be_planned() -> None:
    result = gpuctl("plan", "drain", "gpu-1")
    assert result.returncode == 3
    assert gpuctl("plan", "--help").returncode == 0
