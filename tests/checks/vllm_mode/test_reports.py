"""Reports from the field, by the issue or pull request they stand in, rebuilt as clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.builders import vllm as make
from tests.checks.judging import CHAT
from tests.checks.judging import judged_engines as judged

LOOPING = {"waiting": {"reason": "CrashLoopBackOff"}}


@dataclass(frozen=True)
class Report:
    """A pod's container and log as reported, whether it failed, and the codes that belong to it."""

    log: str
    codes: tuple[str, ...]
    failed: bool = False
    container: Any = None
    labels: Any = None


def free(free_gib: float, total: float, share: float, wanted: float) -> str:
    return make.failed_log(
        f"ValueError: Free memory on device ({free_gib}/{total} GiB) on startup is less than desired GPU "
        f"memory utilization ({share}, {wanted} GiB). Decrease GPU memory utilization"
    )


def until(text: str, words: str, *more: str) -> str:
    """A log that ends before these words, with other lines after it."""
    begun = text.partition(words)[0].rpartition("\n")[0]
    return "\n".join([begun, *more, ""])


V0_IMAGE = "vllm/vllm-openai:v0.9.2"
OOM = make.record("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.", level="ERROR")
CAPTURE_OOM = make.record("RuntimeError: CUDA error: out of memory", level="ERROR")
OLD_AND_OUTSIDE = ("VLM010", "VLM070")
TOO_LONG = (
    "The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in "
    "KV cache (1280)."
)

REPORTS = {
    "vllm#15598: 0.98 leaves graphs no room": Report(
        until(make.v0_log(total=44.53, utilization=0.98), "Graph capturing", OOM),
        ("VLM011", "VLM024", "VLM070"),
        failed=True,
        container=make.container(["m", "--gpu-memory-utilization", "0.98"], image=V0_IMAGE),
    ),
    "vllm#7553: 2.4 GiB of graphs beside a budget of 90 % of a 4090": Report(
        make.v0_log(total=23.99, utilization=0.9, took=2.41),
        OLD_AND_OUTSIDE,
        container=make.container(image=V0_IMAGE),
    ),
    "vllm#11230: eager, and still too small": Report(
        "\n".join(
            [
                make.old_record("# GPU blocks: 80, # CPU blocks: 819", "gpu_executor.py"),
                make.old_record("Maximum concurrency for 8192 tokens per request: 0.16x", "gpu_executor.py"),
                make.old_record(TOO_LONG, "engine.py", level="ERROR"),
                "",
            ]
        ),
        ("VLM005", "VLM021", "VLM070"),
        failed=True,
        container=make.container(["m", "--enforce-eager"], image="vllm/vllm-openai:v0.6.4.post1"),
    ),
    "vllm#19186: capture runs out of memory on one rank": Report(
        until(make.v0_log(), "Graph capturing", f"(VllmWorker rank=3 pid=9) {CAPTURE_OOM}"),
        ("VLM024", "VLM070"),
        failed=True,
        container=make.container(image=V0_IMAGE),
    ),
    "vllm#18446: the new engine runs out of memory at the end of capture": Report(
        until(make.graphs_log("0.9.1"), "Graph capturing", f"(VllmWorker rank=0 pid=9) {CAPTURE_OOM}"),
        ("VLM024", "VLM070"),
        failed=True,
        container=make.container(image="vllm/vllm-openai:v0.9.1"),
    ),
    "vllm#17431: a utilisation of 0.4 leaves nothing": Report(
        make.failed_log(
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
        ),
        ("VLM022",),
        failed=True,
        container=make.container(["m", "--gpu-memory-utilization", "0.4"]),
    ),
    "vllm#39788: a worker of many runs out of memory in capture_model": Report(
        until(make.graphs_log("0.19.0"), "Graph capturing", f"(Worker_TP2 pid=9) {OOM}"),
        ("VLM024",),
        failed=True,
        container=make.container(["m", "-tp", "4"], image="vllm/vllm-openai:v0.19.0"),
    ),
    "vllm#40937: a clamp that graph profiling does not see": Report(
        until(make.graphs_log("0.19.1"), "Graph capturing", OOM),
        ("VLM024",),
        failed=True,
        container=make.container(
            gpus={"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 24576},
            image="vllm/vllm-openai:v0.19.1",
        ),
    ),
    "vllm#50159: an eager run that is well": Report(
        make.eager_log("0.26.0"), ("VLM005",), container=make.container(["m", "--enforce-eager"])
    ),
    "vllm#57475: 0.98 crashes": Report(make.graphs_log("0.29.0", utilization=0.98), ("VLM011",)),
    "vllm#57475: 0.96 does not": Report(make.graphs_log("0.29.0", utilization=0.96), ()),
    "vllm#20305: another process holds 16 GiB": Report(
        free(31.44, 47.38, 0.95, 45.01), ("VLM020",), failed=True
    ),
    "a keep-alive script holds the GPU": Report(free(13.91, 79.33, 0.95, 75.36), ("VLM020",), failed=True),
    "home-ops#13221: unified memory, small utilisation": Report(
        free(38.74, 121.63, 0.35, 42.57), ("VLM020",), failed=True
    ),
    "pytorch#175666: short by 0.07 GiB": Report(free(19.77, 22.05, 0.9, 19.84), ("VLM020",), failed=True),
    "vllm#56830: a neighbour gave memory back": Report(
        make.failed_log(
            "AssertionError: Error in memory profiling. Initial free memory 82.94 GiB, current free memory "
            "90.17 GiB."
        ),
        ("VLM023",),
        failed=True,
    ),
    "production-stack#1047: half a GPU becomes none": Report(
        make.graphs_log(), ("VLM040",), container=make.container(gpus={})
    ),
    "production-stack#504: MPS refuses": Report(
        make.failed_log("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
        ("VLM029",),
        failed=True,
    ),
    "vllm#9094: capture is not permitted": Report(
        make.failed_log("RuntimeError: CUDA error: operation not permitted when stream is capturing"),
        ("VLM029",),
        failed=True,
    ),
    "llm-engine#851: eager in every pod": Report(
        make.eager_log(), ("VLM005",), container=make.container(["m", "--enforce-eager"])
    ),
    "a platform that sets eager behind one's back": Report(make.eager_log(), ("VLM004",)),
    "vllm#34199: a Service named vllm": Report(
        make.failed_log("ValueError: VLLM_PORT 'tcp://10.96.0.120:6785' appears to be a URI."),
        ("VLM027",),
        failed=True,
    ),
    "vllm#41848: a MIG device by UUID": Report(
        make.failed_log("ValueError: invalid literal for int() with base 10: 'MIG-0'"),
        ("VLM026", "VLM026"),
        failed=True,
        container=make.container(image="vllm/vllm-openai:v0.20.1", env={"CUDA_VISIBLE_DEVICES": "MIG-0"}),
    ),
    "vllm#5107: too large for 3g.40gb, and NVML hides it": Report(
        make.failed_log("RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at x.cpp"),
        ("VLM025",),
        failed=True,
        container=make.container(["m", "--max-num-seqs", "8"], gpus={"nvidia.com/mig-3g.40gb": 1}),
    ),
    "vllm#7211: tensor parallelism over slices": Report(
        make.graphs_log(),
        ("VLM041",),
        container=make.container(
            ["m", "--max-num-seqs", "8", "-tp", "2"], gpus={"nvidia.com/mig-3g.40gb": 2}
        ),
    ),
    "vllm#17386: a probe kills it while it compiles": Report(
        until(make.graphs_log(), "Profiling", "KeyboardInterrupt: terminated"),
        ("VLM030",),
        failed=True,
    ),
    "a pod at 90 % of its memory": Report(make.graphs_log(utilization=0.9), ()),
    "worker-vllm#40: the newest line first": Report(
        "\n".join(reversed(make.eager_log().rstrip("\n").split("\n"))),
        ("VLM005",),
        container=make.container(["m", "--enforce-eager"]),
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_what_is_said_of_a_report(name: str) -> None:
    report = REPORTS[name]
    state: dict[str, Any] = {"restarts": 4, "state": LOOPING, "ready": False} if report.failed else {}
    pod = make.pod(CHAT, report.container or make.container(), **state)
    found = judged(pod, make.node(), written={(CHAT, "vllm"): report.log})
    said = [code for code in found.codes if code != "VLM003"]  # what the strict reading would say
    assert tuple(said) == report.codes
