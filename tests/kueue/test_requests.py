"""What a Workload asks for, as Kueue counts it; where its pods may run; and what it was told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuctl.facts.state import Known, NotKnown, Reason, Unknown
from gpuctl.kueue.objects import RequestingPodSpec, ResourceFlavor, Workload
from gpuctl.kueue.placement import suits, untolerated
from gpuctl.kueue.quantities import ONE, shown
from gpuctl.kueue.requests import asked, of_pod, transformed
from gpuctl.kueue.settings import Settings, parse
from tests.builders.queues import GPU, World, pods

MIG = "nvidia.com/mig-1g.10gb"


def spec(**parts: Any) -> RequestingPodSpec:
    return msgspec.convert(parts, RequestingPodSpec)


def box(**requests: Any) -> dict[str, Any]:
    return {"resources": {"requests": {name.replace("_", "-"): each for name, each in requests.items()}}}


@pytest.mark.parametrize(
    ("pod", "cpus"),
    [
        (spec(containers=[box(cpu="1"), box(cpu="2")]), "3"),
        (spec(containers=[box(cpu="1")], initContainers=[box(cpu="4")]), "4"),
        (spec(containers=[box(cpu="1")], initContainers=[{**box(cpu="4"), "restartPolicy": "Always"}]), "5"),
        (spec(containers=[box(cpu="1")], overhead={"cpu": "250m"}), "1250m"),
        (spec(containers=[{"resources": {"limits": {"cpu": "2"}}}]), "2"),
        (spec(containers=[{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]), "1"),
    ],
)
def test_a_pod(pod: RequestingPodSpec, cpus: str) -> None:
    assert shown(of_pod(pod)["cpu"]) == cpus


CONFIGURATION = """
resources:
  excludeResourcePrefixes: [example.com/]
  transformations:
  - input: nvidia.com/mig-1g.10gb
    strategy: Replace
    outputs: {gpu.memory: 10Gi}
  - input: nvidia.com/gpu
    outputs: {credits: 8}
waitForPodsReady: {enable: true, blockAdmission: true}
"""


def test_transformations() -> None:
    settings = parse(CONFIGURATION)
    found = transformed({MIG: 2 * ONE, GPU: ONE}, settings)
    assert {name: shown(each, name) for name, each in found.items()} == {
        "gpu.memory": "20Gi",
        GPU: "1",
        "credits": "8",
    }
    assert settings.inputs_of("gpu.memory") == (MIG,)
    assert settings.inputs_of("cpu") == ("cpu",)
    assert settings.blocks_admission
    assert not settings.counts("example.com/dongle")


def test_kueues_own_count_goes_before_the_template() -> None:
    item = World().workload("w", 3)
    item["status"]["resourceRequests"] = [{"name": "main", "resources": {"credits": "24"}}]
    (ask,) = asked(msgspec.convert(item, Workload), Unknown(Reason.FORBIDDEN))
    assert ask.amounts == {"credits": 24 * ONE}


def test_without_kueues_count_the_configuration_must_be_known() -> None:
    workload = msgspec.convert(World().workload("w", 3), Workload)
    with pytest.raises(NotKnown):
        asked(workload, Unknown(Reason.FORBIDDEN))
    assert asked(workload, Known(Settings()))[0].amounts == {GPU: 3 * ONE}


@pytest.mark.parametrize("text", ["[]", "a: [", "resources: {transformations: [{}]}", "resources: 7"])
def test_a_broken_configuration_is_not_known(text: str) -> None:
    if text == "[]":
        assert parse(text) == Settings()
        return
    with pytest.raises(NotKnown):
        parse(text)


def flavor(**parts: Any) -> ResourceFlavor:
    return msgspec.convert({"metadata": {"name": "f"}, "spec": parts}, ResourceFlavor)


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    expressions = [{"key": key, "operator": operator, "values": list(values)}]
    terms = [{"matchExpressions": expressions}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, True),
        ({"nodeSelector": {"gpu": "h100"}}, True),
        ({"nodeSelector": {"gpu": "a100"}}, False),
        ({"nodeSelector": {"zone": "x"}}, True),  # no flavor has the key: Kueue does not look at it
        (term("gpu", "In", "h100", "a100"), True),
        (term("gpu", "NotIn", "h100"), False),
        (term("gpu", "Exists"), True),
        (term("zone", "In", "x"), True),
        (term("gpu", "Gt", "3"), True),
    ],
)
def test_labels(pod: dict[str, Any], expected: bool) -> None:
    assert suits(spec(**pod), flavor(nodeLabels={"gpu": "h100"}), {"gpu"}) is expected


@pytest.mark.parametrize(
    ("tolerations", "kept_out"),
    [
        ([], True),
        ([{"key": "gpu", "operator": "Exists"}], False),
        ([{"operator": "Exists"}], False),
        ([{"key": "gpu", "value": "yes"}], False),
        ([{"key": "gpu", "value": "no"}], True),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], True),
    ],
)
def test_taints(tolerations: list[dict[str, str]], kept_out: bool) -> None:
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    found = untolerated(spec(tolerations=tolerations), flavor(nodeTaints=taints))
    assert (found is not None) is kept_out


def test_a_preference_keeps_nobody_out() -> None:
    taints = [{"key": "gpu", "effect": "PreferNoSchedule"}]
    assert untolerated(spec(), flavor(nodeTaints=taints)) is None


def test_pod_sets_are_counted_whole() -> None:
    item = World().workload("w", pod_sets=[pods({GPU: "2"}, count=4), pods({"cpu": "1"}, name="head")])
    asks = asked(msgspec.convert(item, Workload), Known(Settings()))
    assert [(each.name, each.amounts) for each in asks] == [("main", {GPU: 8 * ONE}), ("head", {"cpu": ONE})]
