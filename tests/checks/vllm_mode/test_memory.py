"""Memory: each finding, and the same data slightly changed that raises none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuctl.audit.judge import Verdict
from gpuctl.audit.policy import ChecksPolicy, Policy, VllmModePolicy
from gpuctl.checks.vllm_mode import CHECK
from gpuctl.facts.gather import gather
from gpuctl.vllm.baseline import MEMORY_BASELINE, MemoryBaseline, baseline, parse
from gpuctl.vllm.facts import engines_of_vllm
from tests.builders import vllm as make
from tests.checks.judging import CHAT
from tests.checks.judging import judged_engines as judged
from tests.memory import MemoryReader

OLD = make.container(image="vllm/vllm-openai:v0.9.2")


def v0(**figures: Any) -> Any:
    return judged(make.pod(CHAT, OLD), written={(CHAT, "vllm"): make.v0_log(**figures)})


def test_graphs_outside_of_the_budget() -> None:
    found = v0(utilization=0.95, took=1.0)
    message = found.one("VLM010").message
    assert "1.00 GiB" in message
    assert "0.18 GiB" in message


@pytest.mark.parametrize(
    "figures",
    [
        {"utilization": 0.90, "took": 1.0},
        {"utilization": 0.95, "took": 0.2},
        {"utilization": 0.95, "eager": True},
    ],
)
def test_graphs_that_fit_beside_the_budget(figures: dict[str, Any]) -> None:
    assert "VLM010" not in v0(**figures).codes


@pytest.mark.parametrize(("estimate", "found"), [("0.00", True), ("0.10", True), ("0.79", False)])
def test_an_estimate_that_is_short_leaves_the_rest_outside(estimate: str, found: bool) -> None:
    """vllm#49224, #50159: the new model runner of 0.25 and 0.26 estimated next to nothing."""
    text = make.graphs_log("0.26.0", utilization=0.96, took=0.9)
    text = text.replace("0.71 GiB (actual), 0.79", f"0.90 GiB (actual), {estimate}").replace(
        "Estimated CUDA graph memory: 0.79", f"Estimated CUDA graph memory: {estimate}"
    )
    assert ("VLM010" in judged(make.pod(), written={(CHAT, "vllm"): text}).codes) is found


def test_newer_versions_count_graphs_within_the_budget() -> None:
    text = make.graphs_log(utilization=0.95, took=1.0)
    assert "VLM010" not in judged(make.pod(), written={(CHAT, "vllm"): text}).codes
    line = make.record(
        "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). Consider "
        "--gpu-memory-utilization from 0.9500 to 0.9700.",
        "gpu_worker.py",
        "WARNING",
        who="(EngineCore pid=111) ",
    )
    switched_off = text.replace(
        "(EngineCore pid=111) INFO 09-01 10:00:00 [gpu_worker.py:101] Available",
        f"{line}\n(EngineCore pid=111) INFO 09-01 10:00:00 [gpu_worker.py:101] Available",
    )
    assert "VLM010" in judged(make.pod(), written={(CHAT, "vllm"): switched_off}).codes


def test_the_size_of_the_slice_counts_where_the_log_names_none() -> None:
    """A log of 0.19 does not name the total: the node's labels do."""
    slice_ = {"nvidia.com/mig-1g.10gb": 1}
    text = make.graphs_log("0.17.0", took=1.0, utilization=0.9)
    labels = {"nvidia.com/mig-1g.10gb.memory": "9728"}
    pod = make.pod(
        CHAT, make.container(["m", "--max-num-seqs", "8"], image="vllm/vllm-openai:v0.17.0", gpus=slice_)
    )
    assert "VLM010" in judged(pod, make.node(labels=labels), written={(CHAT, "vllm"): text}).codes
    large = {"nvidia.com/mig-1g.10gb.memory": "40960"}
    assert "VLM010" not in judged(pod, make.node(labels=large), written={(CHAT, "vllm"): text}).codes


@pytest.mark.parametrize(
    ("resource", "label"),
    [
        ("nvidia.com/mig-1g.10gb.shared", "nvidia.com/mig-1g.10gb.memory"),
        ("nvidia.com/mig-2g.48gb-me", "nvidia.com/mig-2g.48gb-me.memory"),
        ("nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-1g.10gb.me.memory"),
        ("nvidia.com/gpu.shared", "nvidia.com/gpu.memory"),
    ],
)
def test_the_size_of_a_slice_stands_under_the_name_of_its_profile(resource: str, label: str) -> None:
    pod = make.pod(CHAT, make.container(gpus={resource: 1}))
    assert judged(pod, make.node(labels={label: "9728"})).engine["gpu"]["gib"] == 9.5
    other = {"nvidia.com/gpu.memory": "", f"{label}.other": "9728"}
    assert "gib" not in judged(pod, make.node(labels=other)).engine["gpu"]


@pytest.mark.parametrize(("utilization", "found"), [(0.98, True), (0.97, True), (0.96, False), (0.92, False)])
def test_a_utilisation_that_leaves_no_room(utilization: float, found: bool) -> None:
    text = make.graphs_log(utilization=utilization)
    assert ("VLM011" in judged(make.pod(), written={(CHAT, "vllm"): text}).codes) is found


def test_a_high_utilisation_without_graphs_is_no_finding() -> None:
    eager = make.eager_log().replace(
        "'enforce_eager': True", "'enforce_eager': True, 'gpu_memory_utilization': 0.98"
    )
    pod = make.pod(CHAT, make.container(["m", "--enforce-eager"]))
    assert judged(pod, written={(CHAT, "vllm"): eager}).codes == ["VLM005"]


def test_a_pod_at_ninety_percent_is_normal() -> None:
    for utilization in (0.9, 0.92):
        found = judged(make.pod(), written={(CHAT, "vllm"): make.graphs_log(utilization=utilization)})
        assert found.codes == ["VLM003"]


def unlabelled() -> dict[str, Any]:
    """A node that says nothing of its GPUs."""
    node = make.node()
    node["metadata"]["labels"] = {}
    return node


def without(text: str, *words: str) -> str:
    """A log without the lines that hold one of these words."""
    return "".join(line for line in text.splitlines(keepends=True) if not any(word in line for word in words))


BEFORE_ESTIMATES = without(make.graphs_log("0.11.0", took=4.2, utilization=0.95), "Estimated", "pool memory")


@pytest.mark.parametrize(
    ("text", "node", "verdict"),
    [
        (BEFORE_ESTIMATES, unlabelled(), Verdict.NOT_PROVEN),
        (without(BEFORE_ESTIMATES, "took 4.2 GiB"), make.node(), Verdict.NOT_PROVEN),
        ("INFO:     Application startup complete.\n", make.node(), Verdict.NOT_PROVEN),
        (BEFORE_ESTIMATES.replace("took 4.2", "took 0.2"), make.node(), Verdict.PASS),
    ],
    ids=["size of the GPU", "size of the graphs", "a log without figures", "all is known"],
)
def test_graphs_beside_the_budget_fit_only_where_sizes_are_known(
    text: str, node: dict[str, Any], verdict: Verdict
) -> None:
    pod = make.pod(CHAT, make.container(image="vllm/vllm-openai:v0.11.0"))
    assert judged(pod, node, written={(CHAT, "vllm"): text}).of("room-for-graphs").verdict is verdict


SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.count": "1"}


@pytest.mark.parametrize(
    ("shares", "labels", "found"),
    [
        ((0.5, 0.5), SHARED, True),
        ((0.4, 0.5), SHARED, False),
        ((0.5, 0.5), {**SHARED, "nvidia.com/gpu.count": "2"}, False),
        ((0.5, 0.5), {**SHARED, "nvidia.com/gpu.sharing-strategy": "mps"}, False),
        ((0.5, 0.5), {"nvidia.com/gpu.count": "1"}, False),
    ],
)
def test_engines_that_share_a_gpu(shares: tuple[float, ...], labels: dict[str, str], found: bool) -> None:
    names = [f"chat-7c9d5b8f4-{letter * 5}" for letter in "ab"]
    pods = [
        make.pod(
            name,
            make.container(["m", "--gpu-memory-utilization", str(share)], gpus={"nvidia.com/gpu.shared": 1}),
        )
        for name, share in zip(names, shares, strict=True)
    ]
    written = {
        (name, "vllm"): make.graphs_log(utilization=share) for name, share in zip(names, shares, strict=True)
    }
    codes = judged(*pods, make.node(labels=labels), written=written).codes
    assert (codes.count("VLM012") == 2) is found
    assert ("VLM012" in codes) is found


TWO_SHARED = {**SHARED, "nvidia.com/gpu.count": "2"}
SLICE = "nvidia.com/mig-1g.10gb"
SHARED_SLICES = {f"{SLICE}.sharing-strategy": "time-slicing", f"{SLICE}.count": "1"}


@pytest.mark.parametrize(
    ("gpus", "args", "share", "labels", "found"),
    [
        ({"nvidia.com/gpu": 2}, ("-tp", "2"), 0.92, TWO_SHARED, 2),
        ({"nvidia.com/gpu": 2}, ("-tp", "2"), 0.45, TWO_SHARED, 0),
        ({"nvidia.com/gpu": 2}, (), 0.92, TWO_SHARED, 0),
        ({"nvidia.com/gpu": 2}, ("-tp", "2"), 0.92, {**SHARED, "nvidia.com/gpu.count": "4"}, 0),
        ({"nvidia.com/gpu": 1}, ("-tp", "16"), 0.92, TWO_SHARED, 0),
        ({f"{SLICE}.shared": 1}, (), 0.5, SHARED_SLICES, 2),
        ({SLICE: 1}, (), 0.5, SHARED_SLICES, 2),
        ({f"{SLICE}.shared": 1}, (), 0.4, SHARED_SLICES, 0),
        ({f"{SLICE}.shared": 1}, (), 0.5, {**SHARED_SLICES, f"{SLICE}.count": "2"}, 0),
        ({SLICE: 1}, (), 0.5, SHARED, 0),
    ],
)
def test_an_engine_takes_its_share_of_each_device_it_spreads_over(
    gpus: dict[str, int], args: tuple[str, ...], share: float, labels: dict[str, str], found: int
) -> None:
    container = make.container(["m", "--gpu-memory-utilization", str(share), *args], gpus=gpus)
    pods = [make.pod(f"chat-7c9d5b8f4-{letter * 5}", container) for letter in "ab"]
    result = judged(*pods, make.node(labels=labels), written={})
    assert result.codes.count("VLM012") == found


def test_over_how_many_devices_it_spreads_is_evidence() -> None:
    container = make.container(["m", "-tp", "2"], gpus={"nvidia.com/gpu": 2})
    pods = [make.pod(f"chat-7c9d5b8f4-{letter * 5}", container) for letter in "ab"]
    found = judged(*pods, make.node(labels=TWO_SHARED), written={}).of("shared-gpus").findings
    assert "368 % of 200 %" in found[0].message
    assert {each.observed for each in found[0].evidence} == {"utilisation 92 % on each of 2"}


def test_an_engine_alone_shares_with_nobody() -> None:
    pod = make.pod(CHAT, make.container(["m", "--gpu-memory-utilization", "0.96"]))
    assert judged(pod, make.node(labels=SHARED), written={}).of("shared-gpus").verdict is Verdict.PASS


@pytest.mark.parametrize(("number", "verdict"), [(2, Verdict.UNKNOWN), (1, Verdict.PASS)])
def test_parallelism_that_is_hidden_is_not_taken_for_none(number: int, verdict: Verdict) -> None:
    told = "INFO 09-01 10:00:00 [utils.py:101] non-default args: {'gpu_memory_utilization': 0.4}\n"
    script = make.container(args=(), command=["/app/run.sh"], gpus={"nvidia.com/gpu": number})
    names = [f"chat-7c9d5b8f4-{letter * 5}" for letter in "ab"]
    pods = [make.pod(name, script) for name in names]
    written = {(name, "vllm"): told for name in names}
    found = judged(*pods, make.node(labels=TWO_SHARED), written=written)
    assert found.of("shared-gpus").verdict is verdict


def hiding(name: str) -> dict[str, Any]:
    """A pod whose share of the GPU lies in a Secret."""
    pod = make.pod(name, make.container(["m", "--gpu-memory-utilization", "$(SHARE)"]))
    reference = {"secretKeyRef": {"name": "settings", "key": "share"}}
    pod["spec"]["containers"][0]["env"] = [{"name": "SHARE", "valueFrom": reference}]
    return pod


def test_a_share_that_is_not_known_is_none_of_nothing() -> None:
    pods = [hiding(f"chat-7c9d5b8f4-{letter * 5}") for letter in "ab"]
    found = judged(*pods, make.node(labels=SHARED), written={})
    assert found.of("shared-gpus").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("concurrency", "found"), [(0.16, True), (0.99, True), (1.0, False), (27.39, False)])
def test_room_for_one_request(concurrency: float, found: bool) -> None:
    text = make.graphs_log().replace("27.39x", f"{concurrency}x")
    assert ("VLM013" in judged(make.pod(), written={(CHAT, "vllm"): text}).codes) is found


def test_room_that_the_log_does_not_tell_is_not_proven() -> None:
    text = without(make.graphs_log(), "Maximum concurrency")
    found = judged(make.pod(), written={(CHAT, "vllm"): text})
    assert found.of("enough-kv-cache").verdict is Verdict.NOT_PROVEN


def test_the_share_of_the_kv_cache_is_the_policys_matter() -> None:
    small = Policy(checks=ChecksPolicy(vllm_mode=VllmModePolicy(kv_share=0.3)))
    assert "VLM014" in judged(make.pod(), policy=small).codes
    smaller = Policy(checks=ChecksPolicy(vllm_mode=VllmModePolicy(kv_share=0.1)))
    assert "VLM014" not in judged(make.pod(), policy=smaller).codes


@pytest.mark.parametrize(("non_torch", "found"), [(8.29, True), (2.0, True), (1.9, False), (-0.05, False)])
def test_a_neighbour_counts_as_memory_outside_of_pytorch(non_torch: float, found: bool) -> None:
    assert ("VLM015" in v0(non_torch=non_torch).codes) is found


@pytest.mark.parametrize(
    ("fields", "non_torch", "verdict"),
    [
        ({"tensor_parallel_size": 2}, 2.4, Verdict.NOT_PROVEN),
        ({"pipeline_parallel_size": 2}, 2.4, Verdict.NOT_PROVEN),
        ({"tensor_parallel_size": 2}, 0.1, Verdict.NOT_PROVEN),
        ({"tensor_parallel_size": 1}, 2.4, Verdict.FAIL),
        ({"tensor_parallel_size": 1}, 0.1, Verdict.PASS),
    ],
)
def test_buffers_of_an_engine_on_several_gpus_are_no_neighbour(
    fields: dict[str, int], non_torch: float, verdict: Verdict
) -> None:
    assert v0(non_torch=non_torch, **fields).of("alone-at-start").verdict is verdict


def test_what_v0_tells_of_a_neighbour_is_no_proof_of_a_process() -> None:
    """On a vGPU the host may hold it."""
    (said,) = (each.message for each in v0(non_torch=8.29).findings if each.code.id == "VLM015")
    assert "most likely by another process (of a vGPU, by its host)" in said
    taken = judged(make.pod(), written={(CHAT, "vllm"): breakdown(70.0)})
    (said,) = (each.message for each in taken.findings if each.code.id == "VLM015")
    assert said.endswith("of its GPU taken when it started, by another process")


def breakdown(free: float) -> str:
    line = (
        f"Free memory on device ({free}/94.97 GiB) on startup. Desired GPU memory utilization is (0.91, "
        "86.42 GiB). Actual usage is 64.44 GiB for consumed memory (weights + non-torch), 4.19 GiB for peak "
        "activation, and 0.25 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `x`. "
        "Current kv cache memory in use is 17.79 GiB."
    )
    return make.graphs_log() + make.record(line, "gpu_worker.py", who="(EngineCore pid=111) ") + "\n"


@pytest.mark.parametrize(("free", "found"), [(91.64, False), (88.0, False), (70.0, True)])
def test_memory_that_was_taken_at_the_start(free: float, found: bool) -> None:
    assert ("VLM015" in judged(make.pod(), written={(CHAT, "vllm"): breakdown(free)}).codes) is found


@pytest.mark.parametrize(
    ("image", "text", "verdict"),
    [
        ("v0.22.1", make.graphs_log(utilization=0.4), Verdict.NOT_PROVEN),
        ("v0.22.1", make.graphs_log(utilization=0.9), Verdict.PASS),
        ("v0.8.5", make.graphs_log("0.8.5", utilization=0.9), Verdict.NOT_PROVEN),
        ("v0.9.2", make.v0_log(), Verdict.PASS),
    ],
    ids=["a small budget", "it starts only where its budget is free", "that was not so before", "V0 tells"],
)
def test_that_nothing_was_taken_at_the_start_must_be_told(image: str, text: str, verdict: Verdict) -> None:
    pod = make.pod(CHAT, make.container(image=f"vllm/vllm-openai:{image}"))
    assert judged(pod, written={(CHAT, "vllm"): text}).of("alone-at-start").verdict is verdict


def taken(text: str) -> MemoryBaseline:
    reader = MemoryReader([make.pod(), make.node()], written={(CHAT, "vllm"): text})
    facts = gather([engines_of_vllm], reader, {})
    return baseline(
        (each for _, each in facts[engines_of_vllm].known()), datetime(2026, 11, 1, tzinfo=UTC), "test"
    )


def test_a_baseline_keeps_workloads_and_not_pods() -> None:
    found = taken(make.graphs_log())
    (entry,) = found.engines
    assert (entry.namespace, entry.workload, entry.container) == ("serving", "Deployment chat", "vllm")
    assert (entry.measured.weights, entry.measured.kv, entry.measured.graphs) == (15.18, 4.1, 0.71)


@pytest.mark.parametrize(
    ("text", "drifted"),
    [
        (make.graphs_log(), ""),
        (make.graphs_log(kv=3.9), ""),
        (make.graphs_log(kv=3.0), "KV cache 4.10 to 3.00 GiB"),
        (make.graphs_log(kv=9.0), ""),
        (
            make.graphs_log(took=2.4).replace("0.71 GiB (actual)", "2.4 GiB (actual)"),
            "graphs 0.71 to 2.40 GiB",
        ),
    ],
)
def test_what_drifted_since(text: str, drifted: str) -> None:
    before = taken(make.graphs_log())
    found = judged(make.pod(), written={(CHAT, "vllm"): text}, arguments={MEMORY_BASELINE: before})
    messages = [each.message for each in found.findings if each.code.id == "VLM016"]
    assert [drifted in message for message in messages] == ([True] if drifted else [])


def test_without_a_baseline_nothing_drifts() -> None:
    assert judged(make.pod()).of("like-the-baseline").verdict == Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"apiVersion":"v1","kind":"Pod","takenAt":"2026-11-01T00:00:00Z"}']
)
def test_what_is_no_baseline(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(content)


def test_memory_that_the_log_does_not_tell_is_not_proven() -> None:
    found = judged(make.pod(), written={(CHAT, "vllm"): make.ROTATED})
    for name in ("room-for-graphs", "enough-kv-cache", "alone-at-start"):
        assert found.of(name).verdict == Verdict.NOT_PROVEN
    assert found.verdict == Verdict.PASS, "a rotated log is normal"


def test_the_check_names_its_reads() -> None:
    assert {rule.resource for need in CHECK.needs for rule in need.rules} | {"pods/log"} >= {"pods/log"}
