"""What kept an engine from running, by its right name: reports from the field, and twins that are well."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from tests.builders import vllm as make
from tests.checks.judging import CHAT
from tests.checks.judging import judged_engines as judged

LOOPING = {"waiting": {"reason": "CrashLoopBackOff"}}
TAKEN = (
    "ValueError: Free memory on device (13.91/79.33 GiB) on startup is less than desired GPU memory "
    "utilization (0.95, 75.36 GiB). Decrease GPU memory utilization"
)
TOO_SMALL = (
    "ValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (1.25 GiB). Based on the available memory, "
    "the estimated maximum model length is 5120."
)
RACE = (
    "AssertionError: Error in memory profiling. Initial free memory 82.94 GiB, current free memory 90.17 GiB."
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of "
    "44.53 GiB of which 448.00 KiB is free."
)
NVML = "RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp"
UUID = "ValueError: invalid literal for int() with base 10: 'MIG-0000'"
LINK = "ValueError: VLLM_PORT 'tcp://10.96.0.120:6785' appears to be a URI."


def failed(error: str, **fields: Any) -> Any:
    pod = make.pod(ready=False, restarts=4, state=LOOPING, **fields)
    return judged(pod, written={(CHAT, "vllm"): make.failed_log(error)})


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (TAKEN, "VLM020", "not too big"),
        (TOO_SMALL, "VLM021", "eager mode would not cure"),
        ("ValueError: No available memory for the cache blocks. Try", "VLM022", "budget"),
        (RACE, "VLM023", "no lack of memory"),
        (OOM, "VLM025", "ran out"),
        ("RuntimeError: CUDA error: out of memory", "VLM024", "captured"),
        (NVML, "VLM025", "NVML"),
        (UUID, "VLM026", "UUID"),
        (LINK, "VLM027", "Service named vllm"),
        ("No platform detected, vLLM is running on UnspecifiedPlatform", "VLM028", "no GPU"),
        ("torch.SomethingNew: oh", "VLM029", "earlier in the log"),
        ("KeyboardInterrupt: terminated", "VLM030", "probe"),
        (
            (
                "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address "
                "already in use"
            ),
            "VLM033",
            "port",
        ),
        ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "VLM029", "MPS"),
        (
            "RuntimeError: CUDA error: operation not permitted when stream is capturing",
            "VLM029",
            "eager mode works",
        ),
    ],
)
def test_what_failed_is_called_by_its_name(error: str, code: str, words: str) -> None:
    found = failed(error)
    assert found.one(code).weight == Severity.ERROR
    assert words in found.one(code).message
    assert found.engine["state"] == "failed"


@pytest.mark.parametrize("error", [TAKEN, TOO_SMALL, RACE, OOM, NVML, UUID, LINK])
def test_a_failure_that_was_overcome_is_information(error: str) -> None:
    """Restarted, and serving now: the log before holds the error."""
    pod = make.pod(ready=True, restarts=1)
    written = {(CHAT, "vllm"): make.graphs_log(), (CHAT, "vllm previous"): make.failed_log(error)}
    assert judged(pod, written=written).codes == ["VLM003"]


def test_an_engine_that_starts_again_after_a_failure_shows_the_failure() -> None:
    pod = make.pod(ready=False, restarts=4)
    written = {(CHAT, "vllm"): "", (CHAT, "vllm previous"): make.failed_log(TAKEN)}
    assert judged(pod, written=written).one("VLM020").weight == Severity.ERROR


@pytest.mark.parametrize("ready", [True, False])
def test_a_crash_loop_without_a_readiness_probe(ready: bool) -> None:
    """Such a container is ready while it runs: between two crashes the pod looks well."""
    again = {(CHAT, "vllm"): make.failed_log(TAKEN)}
    assert "VLM020" in judged(make.pod(ready=ready, restarts=2), written=again).codes
    silent = {(CHAT, "vllm"): "", (CHAT, "vllm previous"): make.failed_log(TAKEN)}
    assert "VLM020" in judged(make.pod(ready=ready, restarts=2), written=silent).codes


def test_capture_that_ran_out_of_memory_after_it_began() -> None:
    """#15598: the utilisation is too high, and eager for ever is no remedy."""
    begun = make.v0_log(utilization=0.98, total=44.53).partition(
        "INFO 09-01 10:00:00 [model_runner.py:101] Graph capturing"
    )[0]
    text = f"{begun}{make.record(OOM, level='ERROR')}\n"
    found = judged(make.pod(ready=False, restarts=2, state=LOOPING), written={(CHAT, "vllm"): text})
    assert "captured graphs" in found.one("VLM024").message
    assert "--gpu-memory-utilization" in found.one("VLM024").remedy


@pytest.mark.parametrize(
    ("size", "code", "words"),
    [
        (1, "VLM020", "another process holds about 16.00 GiB"),
        (2, "VLM022", "16.00 GiB outside of PyTorch: NCCL's buffers, or another process's memory"),
    ],
)
def test_a_neighbour_of_the_old_engine_looks_like_a_lack_of_memory(size: int, code: str, words: str) -> None:
    """NCCL's buffers of an engine on several GPUs look like that neighbour."""
    text = make.v0_log(non_torch=16.0, tensor_parallel_size=size)
    text = text.partition("INFO 09-01 10:00:00 [executor_base.py:101] # cuda")[0]
    text += "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n"
    found = judged(make.pod(ready=False, restarts=2, state=LOOPING), written={(CHAT, "vllm"): text})
    assert words in found.one(code).message


@pytest.mark.parametrize(("code", "finding"), [(137, "VLM030"), (143, "VLM030"), (1, "VLM029")])
def test_an_end_without_words(code: int, finding: str) -> None:
    state = {"terminated": {"exitCode": code}}
    pod = make.pod(ready=False, restarts=3, state=state)
    begun = make.graphs_log().partition("Capturing")[0]
    assert judged(pod, written={(CHAT, "vllm"): begun}).one(finding).weight == Severity.ERROR


def test_refused_arguments() -> None:
    container = make.container(["m", "--enforce-eager=true"])
    found = judged(
        make.pod(CHAT, container, ready=False, restarts=3, state=LOOPING), written={(CHAT, "vllm"): ""}
    )
    assert "--enforce-eager=true" in found.one("VLM032").message
    well = judged(
        make.pod(CHAT, make.container(["m", "--enforce-eager"])), written={(CHAT, "vllm"): make.eager_log()}
    )
    assert "VLM032" not in well.codes


def test_several_attempts_in_one_log() -> None:
    bad = make.failed_log("ValueError: No available memory for the cache blocks.", version="0.22.1")
    found = judged(make.pod(), written={(CHAT, "vllm"): bad + make.graphs_log()})
    assert found.one("VLM031").weight == Severity.INFO
    assert found.engine["starts"] == 2
    assert "VLM031" not in judged(make.pod()).codes


def test_an_engine_whose_log_is_refused_while_it_is_not_ready_is_not_proven() -> None:
    found = judged(make.pod(ready=False, restarts=0), written=None)
    assert found.of("running-engines").verdict == Verdict.NOT_PROVEN


def test_ready_though_the_engine_died() -> None:
    """Without a probe of /health the pod stays ready: nothing but the log tells, so nothing is invented."""
    text = make.graphs_log() + make.record("EngineDeadError", level="ERROR") + "\n"
    assert "VLM029" not in judged(make.pod(ready=True), written={(CHAT, "vllm"): text}).codes
