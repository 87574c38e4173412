"""What a change of the MIG configuration is, what it takes with it, and what it does to others."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.facts.state import Known, NotKnown, Reason, Unknown
from gpuctl.nvidia.node import CONFIG
from gpuctl.runbook.mig.change import MigChange, Wish, unlike
from gpuctl.runbook.mig.effects import (
    what_it_does_to_queues,
    what_the_change_does,
    what_the_scheduler_will_see,
)
from gpuctl.runbook.mig.facts import SILICON, the_change, what_the_old_name_asks, which_pods_must_go
from gpuctl.runbook.mig.reconfigure import RUNBOOK, reverse, what_a_reconfiguration_rests_on
from gpuctl.runbook.records import Run, StepRecord
from tests.builders import queues
from tests.builders.gpus import SEVEN
from tests.cluster.bed.simulated import GpuNode, gpu_node
from tests.cluster.standins.state import A30, A100, H100, H200, Model
from tests.memory import A_MOMENT
from tests.runbook.mig.mig_scenes import NAME, MigScene, holder, job, scene

BALANCED = ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
BOTH = """
version: v1
mig-configs:
  none: [{devices: all, mig-enabled: false}]
  all: [{devices: all, mig-enabled: true, mig-devices: {}}]
"""


def change(found: MigScene) -> MigChange:
    return found.look([the_change])[the_change]


def manager(found: MigScene, **env: str) -> MigScene:
    pod = found.one("Pod", "nvidia-mig-manager-gpu-1")
    pod["spec"]["containers"][0]["env"] = [{"name": key, "value": text} for key, text in env.items()]
    return found


def host_driver(found: MigScene) -> MigScene:
    return found.drop("Pod", "nvidia-driver-daemonset-gpu-1")


def mode_change(model: Model = H100) -> MigScene:
    node = gpu_node(NAME, model=model, profiles=[None], config="none")
    return scene(node, text=BOTH, options={"config": "all"})


def geometry_change() -> MigScene:
    return scene()


# Mode or geometry, GPU pods or all pods: the table of what a change takes with it


@pytest.mark.parametrize(
    ("found", "kind", "scope", "told"),
    [
        (geometry_change(), "geometry", "gpu", []),
        (host_driver(geometry_change()), "geometry", "gpu", []),
        (manager(geometry_change(), WITH_REBOOT="true"), "geometry", "gpu", []),
        (mode_change(), "mode", "gpu", ["MIG mode is switched on GPU 0"]),
        (mode_change(H200), "mode", "gpu", ["MIG mode is switched on GPU 0"]),
        (mode_change(A100), "mode", "all", ["GPUs of Ampere are reset"]),
        (mode_change(A30), "mode", "all", ["GPUs of Ampere are reset"]),
        (host_driver(mode_change()), "mode", "all", ["stops the kubelet"]),
        (manager(mode_change(), WITH_REBOOT="true"), "mode", "all", ["runs WITH_REBOOT"]),
        (manager(mode_change(), WITH_REBOOT="false"), "mode", "gpu", []),
        (manager(host_driver(mode_change()), WITH_SHUTDOWN_HOST_GPU_CLIENTS="false"), "mode", "gpu", []),
        (manager(mode_change(), WITH_SHUTDOWN_HOST_GPU_CLIENTS="true"), "mode", "all", ["stops the kubelet"]),
        (
            mode_change().labelled({"nvidia.com/gpu.deploy.driver": "pre-installed"}),
            "mode",
            "all",
            ["stops the kubelet"],
        ),
    ],
)
def test_what_a_change_takes_with_it(found: MigScene, kind: str, scope: str, told: list[str]) -> None:
    classified = change(found)
    assert classified.kind == kind
    assert found.look([which_pods_must_go])[which_pods_must_go] == scope
    said = "; ".join(classified.consequences)
    assert all(part in said for part in told)
    assert bool(said) is (kind == "mode")


@pytest.mark.parametrize(
    ("labels", "resets"),
    [
        ({"gpu.family": "hopper"}, False),
        ({"gpu.family": "blackwell"}, False),
        ({"gpu.family": "ampere"}, True),
        ({"gpu.family": "ada"}, True),  # unknown to MIG: taken for the worse
        ({"gpu.family": None, "gpu.compute.major": "9"}, False),
        ({"gpu.family": None, "gpu.compute.major": "8"}, True),
        ({"gpu.family": None, "gpu.compute.major": None}, False),  # by its product, an H100
        ({"gpu.family": None, "gpu.compute.major": None, "gpu.product": "NVIDIA-A100-SXM4-40GB"}, True),
        ({"gpu.family": None, "gpu.compute.major": None, "gpu.product": None}, True),
    ],
)
def test_whether_gpus_are_reset_for_a_mode(labels: dict[str, str | None], resets: bool) -> None:
    found = mode_change().labelled({f"nvidia.com/{key}": text for key, text in labels.items()})
    assert change(found).means.resets is resets


@pytest.mark.parametrize(
    ("options", "scope"),
    [({}, "gpu"), ({"scope": "auto"}, "gpu"), ({"scope": "all"}, "all"), ({"scope": "gpu"}, "gpu")],
)
def test_the_scope_can_be_asked_for(options: dict[str, Any], scope: str) -> None:
    found = scene(options={"config": "all-3g.40gb", **options})
    assert found.look([which_pods_must_go])[which_pods_must_go] == scope


def test_an_unknown_change_takes_all_pods() -> None:
    found = scene()
    found.told[NAME, "nvidia-smi-L"] = Unknown(Reason.TIMEOUT, "hung")
    assert found.look([which_pods_must_go])[which_pods_must_go] == "all"


def test_a_mode_that_waits_for_a_reset_counts_as_a_change_of_mode() -> None:
    found = scene(options={"config": "all-3g.40gb"})
    text = found.answers()[NAME, "nvidia-smi-query-gpu"]
    assert change(found).kind == "geometry"
    found.told[NAME, "nvidia-smi-query-gpu"] = text.stdout.replace("Enabled, Enabled", "Enabled, Disabled")  # type: ignore[union-attr]
    assert change(found).kind == "mode"


# From what to what


def node(*profiles: Any, strategy: str = "mixed", config: str = "all-1g.10gb") -> GpuNode:
    return gpu_node(NAME, strategy, profiles=list(profiles), config=config)


@pytest.mark.parametrize(
    ("profiles", "config", "lines"),
    [
        ([SEVEN], "all-3g.40gb", ["gpu 0: 7x 1g.10gb -> 2x 3g.40gb"]),
        ([SEVEN, None], "all-disabled", ["gpu 0: 7x 1g.10gb -> MIG off", "gpu 1: MIG off, as it is"]),
        ([None], "all-enabled", ["gpu 0: MIG off -> MIG on and empty"]),
        (
            [BALANCED],
            "with-media",
            ["gpu 0: 2x 1g.10gb, 1x 2g.20gb, 1x 3g.40gb -> 6x 1g.10gb, 1x 1g.10gb+me"],
        ),
        (
            [SEVEN, SEVEN, ["3g.40gb"], None],
            "half",
            [
                "gpu 0: 7x 1g.10gb -> 2x 3g.40gb",
                "gpu 1: 7x 1g.10gb -> 2x 3g.40gb",
                "gpu 2: 1x 3g.40gb -> MIG off",
                "gpu 3: MIG off, as it is",
            ],
        ),
    ],
)
def test_each_gpu_is_shown(profiles: list[Any], config: str, lines: list[str]) -> None:
    assert list(change(scene(node(*profiles), options={"config": config})).lines) == lines


def test_hardware_is_compared_gpu_by_gpu() -> None:
    found = scene(node(SEVEN, None))
    hardware = found.look([SILICON.hardware])[SILICON.hardware]
    seven = Wish(gpu=0, enabled=True, profiles=(("1g.10gb", 7),))
    off = Wish(gpu=1, enabled=False)
    assert list(unlike((seven, off), hardware)) == []
    swapped = (Wish(gpu=0, enabled=False), Wish(gpu=1, enabled=True, profiles=seven.profiles))
    assert len(list(unlike(swapped, hardware))) == 2
    assert list(unlike((seven, off, Wish(gpu=2, enabled=False)), hardware)) == ["GPU 2 is gone"]
    (said,) = unlike((seven,), hardware)
    assert "not covered" in said


def test_the_old_configuration_is_remembered_as_it_will_be() -> None:
    def old(found: MigScene) -> tuple[Wish, ...]:
        return found.look([what_the_old_name_asks])[what_the_old_name_asks]

    assert old(scene()) == (Wish(gpu=0, enabled=True, profiles=(("1g.10gb", 7),)),)
    assert old(scene().labelled({CONFIG: None})) == ()
    assert old(scene().labelled({CONFIG: "gone"})) == ()
    assert old(scene(node(SEVEN, SEVEN, config="first-only"))) == ()


# What the scheduler and the queues see


def lines(found: MigScene) -> list[str]:
    return list(found.look([what_the_change_does])[what_the_change_does])


def test_the_scheduler_gains_and_loses() -> None:
    said = lines(scene())
    assert "the scheduler gains 2x nvidia.com/mig-3g.40gb (0 -> 2)" in said
    assert "the scheduler loses 7x nvidia.com/mig-1g.10gb (7 -> 0)" in said


def test_with_strategy_single_the_count_changes() -> None:
    said = lines(scene(node(SEVEN, strategy="single")))
    assert "the scheduler loses 5x nvidia.com/gpu (7 -> 2)" in said
    assert not any("gains" in each for each in said)


def test_a_change_of_labels_alone_is_said_to_be_one() -> None:
    found = scene(options={"config": "all-1g.10gb"}).labelled({CONFIG: "all-3g.40gb"})
    assert "the scheduler sees the same resources as before" in lines(found)


def test_the_way_back_is_told() -> None:
    assert "undo sets nvidia.com/mig.config back to all-1g.10gb" in lines(scene())[-1]
    assert "undo gives the label back" in lines(scene().labelled({CONFIG: None}))[-1]


MIG_1G, MIG_3G = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


def with_queues(
    found: MigScene, *, promised: int = 14, labels: dict[str, str] | None = None, asks: str = MIG_3G
) -> MigScene:
    """Two nodes with seven slices each stand behind the quota of one queue, in which a Workload waits."""
    world = queues.World()
    world.namespace("team-a")
    world.flavor("h100", nodeLabels=labels or {"nvidia.com/gpu.family": "hopper"})
    world.queue("research", {"h100": {MIG_1G: promised, MIG_3G: 4}})
    world.local_queue("jobs", to="research")
    world.workload("train-7", queue="jobs", pod_sets=[queues.pods({asks: "1"})])
    return found.add(*world.items)


def to_queues(found: MigScene) -> list[str]:
    return list(found.look([what_it_does_to_queues])[what_it_does_to_queues])


def test_a_cluster_without_kueue_has_no_queues() -> None:
    assert to_queues(scene()) == []
    assert isinstance(scene().look([what_the_scheduler_will_see]).state(what_the_scheduler_will_see), Known)


def test_quota_that_loses_the_gpus_behind_it_is_told() -> None:
    assert (
        "flavor h100: 14 nvidia.com/mig-1g.10gb are promised by ClusterQueue research, nodes offer 14 now "
        "and 7 then, 7 of it without GPUs behind"
    ) in to_queues(with_queues(scene()))


def test_quota_that_is_still_met_is_only_told_to_have_less_behind_it() -> None:
    (said,) = [each for each in to_queues(with_queues(scene(), promised=7)) if "flavor" in each]
    assert said.endswith("nodes offer 14 now and 7 then")


def test_a_flavor_of_other_nodes_is_not_concerned() -> None:
    found = with_queues(scene(), labels={"nvidia.com/gpu.family": "ampere"})
    assert not any("flavor" in each for each in to_queues(found))


def test_a_flavor_that_names_the_configuration_loses_the_node() -> None:
    found = with_queues(scene(), labels={CONFIG: "all-1g.10gb"})
    assert (
        "flavor h100 loses the node: it will not bear nvidia.com/mig.config=all-1g.10gb any more"
        in to_queues(found)
    )


def test_pending_workloads_that_it_would_serve_are_named() -> None:
    assert "1 pending Workload asks for nvidia.com/mig-3g.40gb: team-a/train-7" in to_queues(
        with_queues(scene())
    )
    assert not any("pending" in each for each in to_queues(with_queues(scene(), asks=MIG_1G)))


def test_a_pending_workload_whose_asks_cant_be_told_is_named() -> None:
    found = with_queues(scene())
    (waiting,) = [each for each in found.items if each["kind"] == "Workload"]
    waiting["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "?"}
    (said,) = [each for each in to_queues(found) if "pending" in each]
    assert said.startswith("it can't be told what these pending Workloads ask for: team-a/train-7 (")


def test_queues_that_can_t_be_read_are_said_to_be_unknown() -> None:
    found = with_queues(scene())
    found.missing["workloads.kueue.x-k8s.io"] = Unknown(Reason.FORBIDDEN, "forbidden")
    said = to_queues(found)
    assert any("it can't be told which pending Workloads it would serve" in each for each in said)
    assert found.plan.blockers == ()


def test_the_plan_names_whom_it_takes() -> None:
    effects = scene().add(holder(), job()).plan.effects
    assert "the pods that hold GPUs must go" in effects
    assert any("team-a/train-0" in each for each in effects)
    assert (
        "all pods of the node must go"
        in scene(options={"config": "all-3g.40gb", "scope": "all"}).plan.effects
    )


# What the plan rests on, and the way back


def rests(found: MigScene) -> Any:
    return found.look([what_a_reconfiguration_rests_on])[what_a_reconfiguration_rests_on]


def test_a_plan_rests_on_what_decides_it() -> None:
    assert rests(scene()) == {
        "configuration": "all-1g.10gb",
        "state": "success",
        "GPUs": "0: 7x 1g.10gb",
        "driver": "container",
        "change": "geometry",
        "pods that must go": "gpu",
        "boot id": "boot-1",
        "cordoned before": "no",
        "GPUs afterwards": "0: 2x 3g.40gb",
    }


@pytest.mark.parametrize(
    ("alter", "differs"),
    [
        (lambda found: found.labelled({CONFIG: "all-disabled"}), {"configuration"}),
        (lambda found: found.sliced(["3g.40gb"]), {"GPUs"}),
        (lambda found: found.sliced(None), {"GPUs", "change"}),
        (host_driver, {"driver"}),
        (lambda found: found.node()["status"]["nodeInfo"].update(bootID="boot-2"), {"boot id"}),
        (lambda found: found.node()["spec"].update(unschedulable=True), {"cordoned before"}),
    ],
)
def test_what_changes_in_between_makes_it_stale(alter: Any, differs: set[str]) -> None:
    found = scene()
    alter(found)
    now, before = rests(found), rests(scene())
    assert {key for key in before if now[key] != before[key]} == differs


def run_of(found: MigScene) -> Run:
    steps = tuple(StepRecord(says=each.says, step=each.step) for each in found.plan.steps)
    return Run(
        id="r",
        runbook=RUNBOOK.id,
        target=NAME,
        options=found.options,
        steps=steps,
        started_at=A_MOMENT,
        updated_at=A_MOMENT,
    )


def test_the_reverse_of_a_run_asks_for_the_old_configuration() -> None:
    found = scene(options={"config": "all-3g.40gb", "force": True})
    assert reverse(run_of(found)) == {"config": "all-1g.10gb", "force": True}
    assert reverse(run_of(scene().labelled({CONFIG: None}))) is None
    assert reverse(run_of(scene().labelled({CONFIG: "gone"}))) is None


def test_steps_survive_a_journal() -> None:
    plan = scene().plan
    restored = [RUNBOOK.step(each.step) for each in plan.steps]
    assert [each.says for each in restored] == [each.says for each in plan.steps]


def test_nvsentinel_is_told_where_it_is_at_work() -> None:
    def first(found: MigScene) -> str:
        return found.plan.steps[0].says

    assert first(scene()) == "cordon node gpu-1"
    found = scene().labelled({"k8saas.nvidia.com/ManagedByNVSentinel": "true"})
    assert first(found) == "tell NVSentinel to leave node gpu-1 alone"
    found = scene().labelled({"k8saas.nvidia.com/ManagedByNVSentinel": "false"})
    assert first(found) == "cordon node gpu-1"


def test_gpus_of_unknown_mode_are_no_basis() -> None:
    found = scene(gpu_node(NAME, profiles=[None], config="all-disabled"))
    for command in ("nvidia-smi-query-gpu", "nvidia-smi-q-x"):
        found.told[NAME, command] = Unknown(Reason.TIMEOUT, "hung")
    with pytest.raises(NotKnown):
        change(found)
    assert found.plan.blockers
