"""What must hold before a node's MIG configuration is changed: each guard on data that it refuses, and on
data slightly changed, on which it is silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gpuctl.audit.policy import Policy
from gpuctl.facts.nodes import Output
from gpuctl.facts.state import Inapplicable, Reason, Unknown
from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.gates import window_open
from gpuctl.runbook.guard import Guard
from gpuctl.runbook.mig import guards
from tests.builders.gpus import SEVEN
from tests.cluster.bed.simulated import gpu_node
from tests.cluster.standins.state import A30, A100
from tests.runbook.mig.mig_scenes import NAME, MigScene, holder, job, scene

Change = Callable[[MigScene], Any]
PAUSED = {"nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}


def asked(config: str, node: Any = None, **options: Any) -> MigScene:
    return scene(node, options={"config": config, **options})


def with_mode_off(config: str = "all-disabled", **options: Any) -> MigScene:
    return asked("all-1g.10gb", gpu_node(NAME, profiles=[None], config=config), **options)


def labels(**values: str | None) -> Change:
    return lambda found: found.labelled(
        {f"nvidia.com/{key.replace('__', '.').replace('_', '-')}": text for key, text in values.items()}
    )


def not_ready(found: MigScene) -> None:
    found.node()["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]


def other_os(found: MigScene) -> None:
    found.node()["status"]["nodeInfo"]["osImage"] = "Bottlerocket OS 1.54.0"


def dra(found: MigScene) -> None:
    found.node()["status"]["capacity"] = {"cpu": "4"}
    found.add(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {
                "nodeName": NAME,
                "driver": "gpu.nvidia.com",
                "devices": [{"name": "gpu-0", "attributes": {}}],
            },
        }
    )


def lost(found: MigScene) -> None:
    listing = found.answers()[NAME, "nvidia-smi-L"]
    assert isinstance(listing, Output)
    text = "Unable to determine the device handle for GPU0000:A1:00.0: GPU is lost. Reboot the system\n"
    found.told[NAME, "nvidia-smi-L"] = Output(listing.stdout + text, "", 15)


def machine(state: str, now: str, wanted: str) -> Change:
    prefix = "machineconfiguration.openshift.io/"
    return lambda found: found.annotated(
        {f"{prefix}state": state, f"{prefix}currentConfig": now, f"{prefix}desiredConfig": wanted}
    )


def alone(found: MigScene) -> None:
    found.node("gpu-2")["spec"]["unschedulable"] = True


def nothing(_: MigScene) -> None:
    pass


REFUSED: list[tuple[Guard, Change, str]] = [
    (guards.node_is_ready, not_ready, "Node gpu-1 is not Ready"),
    (guards.node_has_sliceable_gpus, labels(gpu__present=None), "has no label nvidia.com/gpu.present=true"),
    (guards.node_has_sliceable_gpus, labels(mig__capable="false"), "know no MIG"),
    (guards.gpus_are_sound, lost, "GPU is lost"),
    (
        guards.gpus_are_sound,
        lambda found: found.told.update({(NAME, "nvidia-smi-L"): Unknown(Reason.TIMEOUT, "hung")}),
        "cannot be told whether nvidia-smi finds nothing wrong",
    ),
    (
        guards.manager_decides,
        lambda found: found.labelled({"cloud.google.com/gke-gpu-partition-size": "1g.10gb"}),
        "GKE decides the geometry",
    ),
    (guards.manager_decides, other_os, "Bottlerocket decides the geometry"),
    (guards.manager_decides, dra, "the DRA driver decides the geometry"),
    (
        guards.manager_decides,
        lambda found: found.annotated({"hami.io/node-nvidia-register": "x"}),
        "HAMi decides",
    ),
    (
        guards.manager_decides,
        lambda found: found.labelled({"nos.nebuly.com/gpu-partitioning": "mig"}),
        "nos decides",
    ),
    (guards.manager_decides, lambda found: found.labelled({"run.ai/mig.config": "x"}), "Run:ai decides"),
    (
        guards.manager_decides,
        labels(gpu__workload__config="vm-passthrough"),
        "are handed to virtual machines",
    ),
    (guards.manager_decides, labels(vgpu__present="true"), "are virtual"),
    (guards.manager_runs, lambda found: found.drop("Pod", "mig-manager"), "there is no pod of it"),
    (
        guards.manager_runs,
        lambda found: found.one("Pod", "nvidia-mig-manager-gpu-1")["status"].update(phase="Pending"),
        "Pod gpu-operator/nvidia-mig-manager-gpu-1 is Pending",
    ),
    (guards.no_change_under_way, lambda found: found.labelled({STATE: "pending"}), "MIG manager is at work"),
    (guards.no_change_under_way, lambda found: found.labelled({STATE: "rebooting"}), "state=rebooting"),
    (guards.no_change_under_way, lambda found: found.labelled(PAUSED), "are paused and nothing is under way"),
    (guards.no_machine_config, machine("Working", "a", "a"), "is being rolled out to Node gpu-1: Working"),
    (guards.no_machine_config, machine("Done", "a", "b"), "Done, a -> b"),
    (guards.config_is_known, lambda found: found.drop("ConfigMap", "default-mig"), "no ConfigMap with MIG"),
    (guards.not_the_last, alone, "is the last Ready node that offers nvidia.com/mig-1g.10gb"),
]


@pytest.mark.parametrize(("guard", "change", "message"), REFUSED)
def test_a_guard_refuses(guard: Guard, change: Change, message: str) -> None:
    found = scene()
    change(found)
    (said,) = found.against(guard)
    assert message in said


@pytest.mark.parametrize("guard", dict.fromkeys(guard for guard, _, _ in REFUSED))
def test_its_twin_is_silent(guard: Guard) -> None:
    assert scene().against(guard) == []


@pytest.mark.parametrize(
    ("guard", "change"),
    [
        (guards.no_machine_config, machine("Done", "a", "a")),
        (guards.no_change_under_way, lambda found: found.labelled({STATE: "failed"})),
        (guards.manager_decides, labels(gpu__workload__config="container")),
        (guards.not_the_last, lambda found: found.node("gpu-2")["metadata"]["labels"].clear()),
    ],
)
def test_what_only_looks_alike_is_not_refused(guard: Guard, change: Change) -> None:
    found = scene()
    change(found)
    assert found.against(guard) == []


# What is asked


@pytest.mark.parametrize(
    ("config", "guard", "message"),
    [
        ("all-9g.99gb", guards.config_is_known, "there is no configuration 'all-9g.99gb'"),
        ("", guards.config_is_known, "there is no configuration ''"),
        ("all-1g.5gb", guards.profiles_are_offered, "has no profile 1g.5gb, but 1g.10gb"),
        ("a30", guards.profiles_are_offered, "has no profile 1g.6gb"),
    ],
)
def test_a_configuration_for_nothing_here_is_refused(config: str, guard: Guard, message: str) -> None:
    (said,) = asked(config).against(guard)
    assert message in said


@pytest.mark.parametrize(
    "config", ["all-3g.40gb", "all-disabled", "all-enabled", "all-balanced", "custom", "with-media"]
)
def test_configurations_that_fit_are_not_refused(config: str) -> None:
    found = asked(config)
    asked_of = (
        guards.config_is_known,
        guards.config_covers_all,
        guards.profiles_are_offered,
        guards.instances_fit,
        guards.strategy_describes_it,
        guards.scope_is_known,
        guards.something_to_do,
    )
    assert found.against(*asked_of) == []


def test_every_gpu_must_be_covered() -> None:
    two = gpu_node(NAME, profiles=[SEVEN, SEVEN], config="all-1g.10gb")
    (said,) = asked("first-only", two).against(guards.config_covers_all)
    assert "the configuration says nothing of GPU 1" in said
    assert asked("first-only").against(guards.config_covers_all) == []


def test_instances_must_fit_together() -> None:
    text = """
version: v1
mig-configs:
  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}]
  much: [{devices: all, mig-enabled: true, mig-devices: {"3g.40gb": 2, "1g.10gb": 1}}]
"""
    found = scene(text=text, options={"config": "much"})
    (said,) = found.against(guards.instances_fit)
    assert "1x 1g.10gb, 2x 3g.40gb does not fit on one GPU" in said
    (said,) = scene(
        text=text.replace('{"3g.40gb": 2, ', '{"3g.40gb": 3, '), options={"config": "much"}
    ).against(guards.instances_fit)
    assert "2 at most fit" in said


def test_a_name_that_is_no_value_of_a_label_is_refused() -> None:
    text = """
version: v1
mig-configs:
  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}]
  all-1g.10gb+me: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb+me": 1}}]
"""
    (said,) = scene(text=text, options={"config": "all-1g.10gb+me"}).against(guards.config_is_known)
    assert "can't be the value of a label" in said


def test_where_nvidia_smi_tells_no_profiles_the_models_grid_counts() -> None:
    found = with_mode_off()
    for command in ("nvidia-smi-mig-lgip", "nvidia-smi-mig-lgipp"):
        found.told[NAME, command] = Output("No MIG-enabled devices found.\n", "", 6)
    assert found.against(guards.profiles_are_offered, guards.instances_fit) == []


def test_a_list_of_profiles_that_breaks_off_is_none() -> None:
    """What is not in the part that came may be in the other."""
    found = scene()
    whole = found.answers()[NAME, "nvidia-smi-mig-lgip"]
    assert isinstance(whole, Output)
    head, _, _ = whole.stdout.partition("3g.40gb")
    found.told[NAME, "nvidia-smi-mig-lgip"] = Output(head)
    assert found.against(guards.profiles_are_offered, guards.instances_fit) == []


def test_where_neither_profiles_nor_memory_can_be_read_nothing_is_taken_for_possible() -> None:
    found = asked("all-1g.5gb", gpu_node(NAME, profiles=[SEVEN], config="all-1g.10gb"))
    for command in ("nvidia-smi-mig-lgip", "nvidia-smi-mig-lgipp", "nvidia-smi-query-gpu", "nvidia-smi-q-x"):
        found.told[NAME, command] = Unknown(Reason.TIMEOUT, "no answer")
    (against,) = found.against(guards.profiles_are_offered)
    assert "neither which profiles it offers nor its memory could be read" in against


@pytest.mark.parametrize("scope", ["foo", "GPU"])
def test_a_scope_that_there_is_not_is_all_that_is_said_of_it(scope: str) -> None:
    found = scene(options={"config": "all-3g.40gb", "scope": scope})
    assert [each.guard for each in found.plan.blockers] == ["scope-is-known"]


@pytest.mark.parametrize(
    ("strategy", "config", "message"),
    [
        ("single", "all-balanced", "strategy single of the device plugin can't describe it"),
        ("none", "all-3g.40gb", "would be offered as a whole one"),
        ("single", "all-3g.40gb", ""),
        ("single", "all-disabled", ""),
        ("none", "all-disabled", ""),
        ("mixed", "all-balanced", ""),
    ],
)
def test_the_plugins_strategy_must_describe_it(strategy: str, config: str, message: str) -> None:
    found = asked(config, gpu_node(NAME, strategy, profiles=[SEVEN], config="all-1g.10gb"))
    said = found.against(guards.strategy_describes_it)
    assert bool(said) is bool(message)
    assert all(message in each for each in said)


def test_a_misspelt_scope_is_refused() -> None:
    assert asked("all-3g.40gb", scope="gpus").against(guards.scope_is_known)
    assert asked("all-3g.40gb", scope="gpu").against(guards.scope_is_known) == []


def test_nothing_to_do_is_said() -> None:
    (said,) = asked("all-1g.10gb").against(guards.something_to_do)
    assert said == "nothing to do: Node gpu-1 has configuration all-1g.10gb already"


def test_a_label_that_says_so_already_would_do_nothing() -> None:
    found = asked("all-1g.10gb").sliced(["3g.40gb"])
    (said,) = found.against(guards.something_to_do)
    assert "its GPUs are not so" in said
    (blocker,) = guards.something_to_do.blockers(found.look(guards.something_to_do.needs))
    assert "kubectl -n gpu-operator delete pod nvidia-mig-manager-gpu-1" in blocker.remedy
    assert not blocker.override


def test_gpus_that_are_so_already_need_the_label_alone() -> None:
    found = asked("all-1g.10gb").labelled({CONFIG: "all-3g.40gb"})
    assert found.against(guards.something_to_do) == []
    assert "only the label" in found.noted(guards.something_to_do)[0]


# What is noted


@pytest.mark.parametrize(
    ("image", "noted"),
    [
        ("nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0", "may stand still in state pending"),
        ("nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.5.3-ubuntu20.04", "may stand still"),
        ("registry:5000/mig-manager:latest", "can't be told from image"),
        ("nvcr.io/nvidia/k8s-mig-manager@sha256:1", "can't be told from image"),
        ("nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.1@sha256:1", ""),
        ("nvcr.io/nvidia/cloud-native/k8s-mig-manager:v26.7.0", ""),
    ],
)
def test_releases_that_wedge_are_noted(image: str, noted: str) -> None:
    found = scene()
    found.one("Pod", "nvidia-mig-manager-gpu-1")["spec"]["containers"][0]["image"] = image
    assert found.against(guards.manager_runs) == []
    said = found.noted(guards.manager_runs)
    assert bool(said) is bool(noted)
    assert all(noted in each for each in said)


def test_a_narrow_scope_is_the_persons_word() -> None:
    ampere = gpu_node(NAME, model=A100, profiles=[None], config="all-disabled")
    found = asked("all-1g.5gb", ampere, scope="gpu")
    assert found.against(guards.scope_is_wide_enough) == []
    (said,) = found.noted(guards.scope_is_wide_enough)
    assert "GPUs of Ampere are reset" in said
    assert asked("all-1g.5gb", ampere).noted(guards.scope_is_wide_enough) == []


def test_a_missing_way_back_is_noted() -> None:
    assert scene().noted(guards.way_back) == []
    assert "takes the label away" in scene().labelled({CONFIG: None}).noted(guards.way_back)[0]
    assert "is not known" in scene().labelled({CONFIG: "gone"}).noted(guards.way_back)[0]


# What to do elsewhere


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (lambda found: found.labelled({"kubernetes.azure.com/cluster": "c"}), "gpuInstanceProfile"),
        (nothing, "enable migManager in the ClusterPolicy"),
    ],
)
def test_where_no_manager_is_it_says_what_to_do(change: Change, remedy: str) -> None:
    found = scene().drop("Pod", "mig-manager")
    change(found)
    (blocker,) = guards.manager_runs.blockers(found.look(guards.manager_runs.needs))
    assert remedy in blocker.remedy
    assert not blocker.override


def test_another_owner_is_said_once() -> None:
    found = scene().drop("Pod", "mig-manager")
    other_os(found)
    said = found.against(guards.manager_decides, guards.manager_runs)
    assert len(said) == 1
    (blocker,) = guards.manager_decides.blockers(found.look(guards.manager_decides.needs))
    assert "reboot the node" in blocker.remedy


# Altogether


def test_a_healthy_node_can_be_changed() -> None:
    plan = scene().add(holder(), job()).plan
    assert plan.blockers == ()
    assert plan.overridden == ()


def test_no_window_at_all_blocks() -> None:
    found = scene()
    found.policy = with_runbooks(found, windows=())
    assert found.against(window_open)
    assert found.plan.blockers[0].override == "--outside-window"
    found.options = {**found.options, "outside_window": True, "reason": "an incident"}
    assert found.plan.blockers == ()
    assert found.plan.overridden


def with_runbooks(found: MigScene, **changes: Any) -> Policy:
    return Policy(runbooks=msgspec.structs.replace(found.policy.runbooks, **changes))


def test_a_misspelt_node_is_not_fine() -> None:
    found = scene()
    found.items = [each for each in found.items if each["metadata"]["name"] != NAME]
    assert any("there is no such node" in each.message for each in found.plan.blockers)
    assert found.plan.steps == ()


def test_a_misspelt_configuration_is_the_first_thing_said() -> None:
    plan = asked("all-3g.40g").plan
    assert [each.guard for each in plan.blockers] == ["config-is-known", "plan"]
    assert "name one of: a30, all-1g.10gb" in plan.blockers[0].remedy


def test_the_last_node_can_be_taken_on_ones_own_word() -> None:
    found = scene()
    alone(found)
    found.policy = with_runbooks(found, max_pool_share=1.0)
    assert [each.override for each in found.plan.blockers] == ["--last-node"]
    found.options = {**found.options, "last_node": True}
    assert found.plan.blockers == ()


def test_everything_that_can_t_be_read_blocks() -> None:
    for kind in ("nodes", "pods", "configmaps", "leases.coordination.k8s.io"):
        found = scene()
        found.missing[kind] = Unknown(Reason.FORBIDDEN, "forbidden")
        assert found.plan.blockers, kind


def test_without_dra_nothing_is_missed() -> None:
    found = scene()
    found.missing["resourceslices.resource.k8s.io"] = Inapplicable("not served")
    assert found.against(guards.manager_decides) == []


def test_small_models_are_judged_by_their_own_profiles() -> None:
    small = gpu_node(NAME, model=A30, profiles=[None], config="all-disabled")
    found = asked("a30", small)
    assert found.against(guards.profiles_are_offered, guards.instances_fit) == []
