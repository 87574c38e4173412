"""What holds a GPU and does not go with a drain is told, before and after; what can't be read is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuctl.audit.policy import Policy
from gpuctl.cli.endings import tell
from gpuctl.facts.nodes import Output
from gpuctl.facts.state import Reason, Unknown
from gpuctl.nvidia.node import STATE
from gpuctl.runbook.drain.runbook import RUNBOOK
from gpuctl.runbook.drain.still_held import SeeWhatIsLeft, the_node_if_it_has_gpus
from gpuctl.runbook.records import Outcome
from tests.runbook.booked import BookScene, booked
from tests.runbook.mig.mig_scenes import NAME, UID, MigScene, holder, job
from tests.runbook.mig.node_world import NodeWorld

pytestmark = pytest.mark.usefixtures("no_thread")

APPS = (NAME, "nvidia-smi-compute-apps")
STRAY = "4711 (Xorg) on GPU-1"
STEP = SeeWhatIsLeft(node=NAME, node_uid=UID)
FORBIDDEN = Unknown(Reason.FORBIDDEN, "ana may not create pods/exec")
UNREAD: Mapping[tuple[str, str], Unknown] = {(NAME, "nvidia-smi-L"): FORBIDDEN, APPS: FORBIDDEN}


def apps(*pids: int) -> str:
    lines = (f"GPU-1, {pid}, Xorg, 10\n" for pid in pids)
    return "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n" + "".join(lines)


def drained(*pids: int, **told: Output | str | Unknown) -> BookScene:
    """A node with a pod to go, and with these processes."""
    found = booked(RUNBOOK)
    found.policy = Policy()
    found.add(holder(), job())
    found.told |= {APPS: apps(*pids), **{(NAME, name): each for name, each in told.items()}}
    return found


def without_gpus(found: BookScene) -> BookScene:
    about = found.node()
    about["metadata"]["labels"] = {"kubernetes.io/hostname": NAME}
    about["status"] |= {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}
    return found


@dataclass
class World(NodeWorld):
    scene: MigScene = field(default_factory=drained)

    def goes_on(self) -> None:
        """Nobody else does anything."""

    @property
    def result(self) -> Mapping[str, Any]:
        """What a drain of it tells once it has succeeded."""
        ending = self.begin()
        assert ending.outcome is Outcome.SUCCEEDED, (ending, self.said)
        assert ending.result == self.run.result
        return ending.result


# Before


def test_the_plan_notes_each_process_that_no_pod_explains() -> None:
    found = drained(4711, 4712).drop("Pod", "train-0")
    assert isinstance(found, BookScene)
    assert found.plan.blockers == ()
    assert [note for note in found.plan.notes if "process" in note] == [
        f"a process holds a GPU of Node gpu-1 that no pod explains: {pid} (Xorg) on GPU-1; "
        "the drain will not end it"
        for pid in (4711, 4712)
    ]


def test_nothing_is_noted_where_there_are_none_or_a_pod_explains_them() -> None:
    assert not any("process" in note for note in drained().plan.notes)
    assert not any("process" in note for note in drained(4711).plan.notes)


def test_what_can_not_be_read_is_said_and_blocks_nothing() -> None:
    found = drained()
    found.told |= UNREAD
    assert found.plan.blockers == ()
    (note,) = [note for note in found.plan.notes if "process" in note]
    assert note.startswith(
        "it can't be told whether processes hold GPUs of Node gpu-1 that no pod explains: "
    )
    assert "ana may not create pods/exec" in note


def test_nothing_is_probed_where_there_are_no_gpus() -> None:
    found = without_gpus(drained())
    found.told |= UNREAD
    assert not found.look([the_node_if_it_has_gpus])[the_node_if_it_has_gpus]
    assert not any("process" in note for note in found.plan.notes)
    assert "SeeWhatIsLeft" not in [each.step["step"] for each in found.plan.steps]


def test_gpus_that_are_being_changed_are_not_probed() -> None:
    found = drained().labelled({STATE: "pending"}, "nvidia-mig-manager")
    (target,) = found.look([the_node_if_it_has_gpus])[the_node_if_it_has_gpus]
    assert target.why_not == "not tried: MIG manager's state is pending"


# After


def test_an_idle_node_is_said_to_be() -> None:
    assert World().result == {"gpus": "idle"}


def test_a_process_that_is_left_is_in_the_result_and_on_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World(drained(4711))
    ending = world.begin()
    assert ending.outcome is Outcome.SUCCEEDED, world.said
    assert ending.result == {"gpus": "held", "heldBy": [f"process {STRAY}, which no pod explains"]}
    tell(ending)
    shown = capsys.readouterr().out
    assert "  gpus: held\n" in shown
    assert f"  held by: process {STRAY}, which no pod explains\n" in shown


def test_a_process_that_is_about_to_end_does_not_count() -> None:
    found = drained(4711)
    found.later = drained(4712)
    assert World(found).result == {"gpus": "idle"}


def test_one_that_could_not_be_looked_at_again_counts() -> None:
    found = drained(4711)
    found.later = drained()
    found.later.told |= UNREAD
    result = World(found).result
    assert (result["gpus"], len(result["heldBy"])) == ("held", 1)
    assert "ana may not create pods/exec" in result["notRead"][0]


def test_what_can_not_be_read_is_never_idle(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.scene.told |= UNREAD
    ending = world.begin()
    assert ending.outcome is Outcome.SUCCEEDED, world.said
    assert ending.result["gpus"] == "unknown"
    tell(ending)
    shown = capsys.readouterr().out
    assert "  gpus: unknown\n" in shown
    assert "  not read: " in shown
    assert "ana may not create pods/exec" in shown


def resident(name: str = "inference-0") -> dict[str, Any]:
    """A pod of a DaemonSet, which a drain leaves alone."""
    made = holder(name)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "inference", "uid": "inference"}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return made


def test_a_pod_that_was_left_alone_is_told() -> None:
    about = {"name": "inference", "namespace": "team-a", "uid": "inference"}
    found = drained().add(resident(), {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": about})
    assert World(found).result == {
        "gpus": "held",
        "heldBy": ["pod team-a/inference-0 (1x nvidia.com/mig-1g.10gb)"],
    }


def test_of_a_pod_whose_claims_can_not_be_read_it_is_not_known() -> None:
    pod = resident()
    pod["spec"]["containers"][0].pop("resources")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    found = drained().add(pod)
    found.missing = {"resourceclaims.resource.k8s.io": Unknown(Reason.FORBIDDEN, "no claims")}
    told = STEP.learned(found.look(STEP.needs))
    assert told["gpus"] == "held"  # by the pod that is to go
    found.drop("Pod", "train-0")
    told = STEP.learned(found.look(STEP.needs))
    assert told["gpus"] == "unknown"
    assert any("no claims" in each for each in told["notRead"])


def test_another_node_of_the_same_name_is_not_told_of() -> None:
    found = drained()
    found.node()["metadata"]["uid"] = "another"
    facts = found.look(STEP.needs)
    assert not STEP.holds(facts)
    assert "was replaced" in STEP.stuck(facts)
