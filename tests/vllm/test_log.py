"""An engine's log: every version's lines, whatever decorates them, and whatever is broken about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.vllm.failures import Trouble
from gpuctl.vllm.log import EngineLog, Sign, Start
from gpuctl.vllm.mode import Confidence, Mode, of_start
from gpuctl.vllm.reading import kept, parse
from tests.builders import vllm as make
from tests.builders.vllm import config_line, old_record, record

CORE = "(EngineCore_DP0 pid=82) "


def start(text: str) -> Start:
    found = parse(text).start
    assert found is not None
    return found


def mode(text: str) -> Mode | None:
    found = parse(text).start
    return of_start(found) if found else None


def test_a_start_with_graphs_tells_everything() -> None:
    found = start(make.graphs_log())
    assert (found.version, found.engine, found.ready) == ("0.22.1", "V1", True)
    assert (found.utilization, found.max_model_len, found.tensor_parallel) == (0.9, 8192, 1)
    assert (found.kv_tokens, found.concurrency, found.estimate_inside) == (224353, 27.39, None)
    (rank,) = found.ranks
    assert (rank.weights, rank.kv, rank.graphs, rank.graphs_estimate) == (15.18, 4.1, 0.71, 0.79)
    found_mode = of_start(found)
    assert found_mode is not None
    assert (found_mode.graphs, found_mode.variant) == (True, "FULL_AND_PIECEWISE")
    assert found_mode.confidence is Confidence.OBSERVED
    assert found_mode.quote is not None
    assert "Graph capturing finished" in found_mode.quote.text


def test_the_old_engine_says_its_budget_in_three_lines() -> None:
    (rank,) = start(make.v0_log()).ranks
    assert (rank.total, rank.budget, rank.non_torch, rank.activation) == (23.65, 21.29, 0.1, 1.4)
    assert rank.weights == 7.5151, "the line with more digits"
    assert start(make.v0_log()).gpu_blocks == 19010


def test_words_of_advice_are_no_eager_mode() -> None:
    """Logs of old versions with graphs hold the words enforce_eager=True."""
    text = make.v0_log()
    assert "enforce_eager=True" in text
    found = mode(text)
    assert found is not None
    assert found.graphs


@pytest.mark.parametrize(
    ("version", "compilation", "graphs"),
    [
        ("0.8.5", 'compilation_config={"level":3,"use_cudagraph":true}', True),
        ("0.8.5", 'compilation_config={"level":0,"use_cudagraph":true}', False),
        ("0.9.2", 'compilation_config={"level":3,"use_cudagraph":false}', False),
        ("0.10.2", 'compilation_config={"level":3,"use_cudagraph":true,"cudagraph_mode":0}', False),
        ("0.10.2", 'compilation_config={"level":3,"use_cudagraph":true,"cudagraph_mode":1}', True),
        ("0.11.0", 'compilation_config={"level":3,"cudagraph_mode":[2,1]}', True),
        ("0.14.0", "compilation_config={'level': 2, 'cudagraph_mode': <CUDAGraphMode.NONE: 0>}", False),
        ("0.14.0", make.DEFAULT_COMPILATION, True),
        ("0.18.0", "", True),
    ],
)
def test_the_configuration_line_by_version(version: str, compilation: str, graphs: bool) -> None:
    found = mode(record(config_line(version, compilation=compilation), who=CORE))
    assert found is not None
    assert (found.graphs, found.confidence) == (graphs, Confidence.CONFIGURED)


def test_on_the_old_engine_the_level_of_compilation_means_nothing() -> None:
    line = config_line("0.9.2", compilation='compilation_config={"level":0}', engine="V0 ")
    found = mode(record(line, "llm_engine.py"))
    assert found is not None
    assert found.graphs


@pytest.mark.parametrize(
    "line",
    [
        record("Enforce eager set, overriding optimization level to -O0", "vllm.py", "WARNING"),
        record("Enforce eager set, disabling torch.compile and CUDAGraphs.", "vllm.py", "WARNING"),
        record("Cudagraph is disabled under eager mode", "vllm.py"),
        old_record(
            "CUDA graph is not supported on CPU, fallback to the eager mode.", "config.py", level="WARNING"
        ),
        record("Skipping CUDA graph capture. Please add -O 3 to use CUDA graphs.", "gpu_model_runner.py"),
        record(
            "CUDA graph is not supported for mllama on ROCm yet, fallback to the eager mode.", "config.py"
        ),
        record(
            "Data Parallel: Forcing enforce eager to be True since DP is currently not supported", "config.py"
        ),
        record(
            "WideEP: Disabling CUDA Graphs since DeepEP high-throughput kernels are not compatible", "cuda.py"
        ),
        record(
            "Cudagraph mode FULL is not compatible with compilation mode 0.Overriding to NONE.",
            "compilation.py",
        ),
        record(
            "CUDAGraphMode.FULL is not supported with X backend (support: NEVER); setting cudagraph_mode=NONE"
        ),
    ],
)
def test_what_says_eager(line: str) -> None:
    found = mode(line)
    assert found is not None
    assert (found.graphs, found.confidence) == (False, Confidence.OBSERVED)


def test_a_downgrade_after_the_configuration_line_wins() -> None:
    lines = (
        record(config_line("0.26.1"), who=CORE),
        record(
            "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with GDNAttentionBackend backend (support: "
            "AttentionCGSupport.UNIFORM_BATCH); setting cudagraph_mode=FULL_DECODE_ONLY",
            "compilation.py",
            "WARNING",
            who=CORE,
        ),
        record("Graph capturing finished in 4 secs, took 0.25 GiB", "gpu_model_runner.py", who=CORE),
    )
    assert str(mode("\n".join(lines))) == "graphs (FULL_DECODE_ONLY)"


def test_a_processor_without_graphs_is_eager_though_the_flag_is_not_set() -> None:
    compilation = "compilation_config={'cudagraph_mode': <CUDAGraphMode.NONE: 0>}"
    lines = (
        record(config_line("0.11.1", compilation=compilation, device_config="cpu"), who=CORE),
        record("init engine (profile, create kv cache, warmup model) took 2.67 seconds", who=CORE),
    )
    found = mode("\n".join(lines))
    assert found is not None
    assert (found.graphs, found.confidence, found.why) == (
        False,
        Confidence.OBSERVED,
        "no graphs configured on cpu",
    )


def test_an_old_start_without_its_first_lines_is_inferred() -> None:
    blocks = old_record("# GPU blocks: 215, # CPU blocks: 2048", "gpu_executor.py")
    serves = old_record("Available routes are:", "api_server.py")
    found = mode(f"{blocks}\n{serves}")
    assert found is not None
    assert (found.graphs, found.confidence) == (False, Confidence.INFERRED)
    assert mode(blocks) is None, "it may still capture"


def test_compilation_hints_at_graphs() -> None:
    found = mode(record("Compiling a graph for general shape takes 59.77 s", "backends.py"))
    assert found is not None
    assert (found.graphs, found.confidence) == (True, Confidence.INFERRED)


@pytest.mark.parametrize(
    ("line", "kind", "values"),
    [
        (
            (
                "ValueError: Free memory on device (13.91/79.33 GiB) on startup is less than desired GPU "
                "memory utilization (0.95, 75.36 GiB). Decrease GPU memory utilization"
            ),
            Trouble.TAKEN_BY_OTHERS,
            {"free_gib": 13.91, "total_gib": 79.33, "utilization": 0.95, "wanted_gib": 75.36},
        ),
        (
            (
                "ValueError: Free memory on device cuda:0 (12.18/23.56 GiB) on startup is less than desired "
                "GPU memory utilization (0.92, 21.67 GiB)."
            ),
            Trouble.TAKEN_BY_OTHERS,
            {"free_gib": 12.18, "total_gib": 23.56, "utilization": 0.92, "wanted_gib": 21.67},
        ),
        (
            (
                "ValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB "
                "KV cache is needed, which is larger than the available KV cache memory (1.25 GiB). Based on "
                "the available memory, the estimated maximum model length is 5120. Try increasing"
            ),
            Trouble.KV_TOO_SMALL,
            {"max_model_len": 40960, "kv_needed_gib": 10.0, "kv_avail_gib": 1.25, "fits_len": 5120},
        ),
        (
            (
                "ValueError: To serve at least one request with the model's max seq len (40960), (10.0 GB KV "
                "cache is needed, which is larger than the available KV cache memory (1.25 GB)."
            ),
            Trouble.KV_TOO_SMALL,
            {"max_model_len": 40960, "kv_needed_gib": 10.0, "kv_avail_gib": 1.25},
        ),
        (
            (
                "The model's max seq len (8192) is larger than the maximum number of tokens that can be "
                "stored in KV cache (1280). Try increasing"
            ),
            Trouble.KV_TOO_SMALL,
            {"max_model_len": 8192, "kv_tokens": 1280},
        ),
        ("ValueError: No available memory for the cache blocks. Try increasing", Trouble.NO_KV_MEMORY, {}),
        (
            (
                "AssertionError: Error in memory profiling. Initial free memory 82.94 GiB, current free "
                "memory 90.17 GiB. This"
            ),
            Trouble.PROFILING_RACE,
            {"init_free_gib": 82.94, "cur_free_gib": 90.17},
        ),
        (
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB. GPU 0 has a total "
                "capacity of 22.36 GiB of which 120.88 MiB is free. with 22.00 MiB allocated in private "
                "pools (e.g., CUDA Graphs), and"
            ),
            Trouble.OUT_OF_MEMORY,
            {"total_gib": 22.36, "free": 120.88, "private_pools": 22.0},
        ),
        ("RuntimeError: CUDA error: out of memory", Trouble.CAPTURE_OUT_OF_MEMORY, {}),
        ("RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at x.cpp", Trouble.MASKED_OUT_OF_MEMORY, {}),
        ("ValueError: invalid literal for int() with base 10: 'MIG-00000000'", Trouble.MIG_UUID, {}),
        ("ValueError: VLLM_PORT 'tcp://10.96.0.1:8000' appears to be a URI.", Trouble.SERVICE_LINK, {}),
        ("No platform detected, vLLM is running on UnspecifiedPlatform", Trouble.NO_GPU, {}),
        ("KeyboardInterrupt: terminated", Trouble.KILLED, {}),
        (
            "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (12).",
            Trouble.MAMBA_BLOCKS,
            {},
        ),
    ],
)
def test_why_a_start_failed(line: str, kind: Trouble, values: dict[str, float]) -> None:
    """The cause, not the last words."""
    found = start(make.failed_log(line)).failure
    assert found is not None
    assert (found.kind, dict(found.values)) == (kind, values)


def test_a_failure_that_names_no_cause_is_one_all_the_same() -> None:
    found = start(make.failed_log("torch.SomethingNew: oh")).failure
    assert found is not None
    assert found.kind is Trouble.FAILED


def test_the_last_complete_start_counts() -> None:
    bad = make.failed_log(
        "ValueError: No available memory for the cache blocks. Try increasing", version="0.22.1"
    )
    found = parse(bad + make.graphs_log())
    assert [each.failure is None for each in found.starts] == [False, True]
    assert found.start is not None
    assert found.start.ready
    once_more = parse(make.graphs_log(kv=4.1) + make.graphs_log(kv=3.0).partition("init engine")[0])
    assert len(once_more.starts) == 2
    assert once_more.start is not None
    assert once_more.start.ranks[0].kv == 4.1


def test_the_same_start_by_a_wrapper_that_prints_no_arguments() -> None:
    """Weights again after the cache was laid out: another attempt. Values may be negative."""
    first, second = make.v0_log(non_torch=16.0), make.v0_log()
    text = first.partition("INFO:     Application")[0].partition("\n")[2] + second.partition("\n")[2]
    found = parse(text)
    assert len(found.starts) == 2
    assert found.starts[0].ranks[0].kv == pytest.approx(-3.63)


def test_two_processes_that_say_the_same_are_one_start() -> None:
    lines = (
        record("Cudagraph is disabled under eager mode", "vllm.py", who="(APIServer pid=1) "),
        record(config_line("0.18.0", eager=True), who=CORE),
        record("Cudagraph is disabled under eager mode", "vllm.py", who=CORE),
        record("Model loading took 1.0 GiB memory and 2.0 seconds", "gpu_model_runner.py", who=CORE),
    )
    assert len(parse("\n".join(lines)).starts) == 1


def test_data_parallel_engines_are_ranks_of_one_start() -> None:
    lines = []
    for rank in (0, 1):
        who = f"(EngineCore_DP{rank} pid={80 + rank}) "
        lines += [
            record(config_line("0.18.0", data_parallel_size=2), who=who),
            record("Model loading took 15.18 GiB memory and 2.0 seconds", "gpu_model_runner.py", who=who),
        ]
    lines += [
        record(
            "Available KV cache memory: 4.1 GiB",
            "gpu_worker.py",
            who=f"(EngineCore_DP{rank} pid={80 + rank}) ",
        )
        for rank in (0, 1)
    ]
    found = parse("\n".join(lines))
    assert len(found.starts) == 1
    assert [rank.name for rank in found.starts[0].ranks] == ["EngineCore_DP0", "EngineCore_DP1"]
    assert found.starts[0].data_parallel == 2


def test_ranks_may_speak_at_the_same_time() -> None:
    lines = [
        record(
            f"Model loading took {60 + rank}.5 GiB memory and 42.5 seconds",
            "model_runner.py",
            who=f"(Worker_TP{rank} pid={rank}) ",
        )
        for rank in (2, 0, 1)
    ]
    lines += [
        record(
            f"Available KV cache memory: {17 - rank} GiB",
            "gpu_worker.py",
            who=f"(Worker_TP{rank} pid={rank}) ",
        )
        for rank in (1, 2, 0)
    ]
    found = start("\n".join(lines))
    assert [(rank.name, rank.weights, rank.kv) for rank in found.ranks] == [
        ("Worker_TP0", 60.5, 17.0),
        ("Worker_TP1", 61.5, 16.0),
        ("Worker_TP2", 62.5, 15.0),
    ]
    assert found.tensor_parallel == 3


def test_the_breakdown_of_newer_versions() -> None:
    text = (
        "Free memory on device cuda:0 (91.64/94.97 GiB) on startup. Desired GPU memory utilization is (0.91, "
        "86.42 GiB). Actual usage is 64.44 GiB for consumed memory (weights + non-torch), 4.19 GiB for peak "
        "activation, and 0.25 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with "
        "`--kv-cache-memory=1` (17.39 GiB) to fit. Current kv cache memory in use is 17.79 GiB."
    )
    (rank,) = start(record(text, "gpu_worker.py", who="(Worker_TP0_EP0 pid=1) ")).ranks
    assert (rank.free_at_start, rank.total, rank.budget, rank.consumed) == (91.64, 94.97, 86.42, 64.44)
    assert (rank.activation, rank.graphs, rank.kv) == (4.19, 0.25, 17.79)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (
            (
                "CUDA graph memory profiling is enabled (default since v0.21.0). The current "
                "--gpu-memory-utilization=0.8500 is"
            ),
            True,
        ),
        (
            (
                "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). "
                "Without it, which may require lowering --gpu-memory-utilization to avoid OOM. Consider "
                "increasing --gpu-memory-utilization from 0.8500 to 0.9595."
            ),
            False,
        ),
        (
            (
                "In v0.19, CUDA graph memory profiling will be enabled by default (X=1). increase "
                "--gpu-memory-utilization from 0.8500 to 0.8521"
            ),
            False,
        ),
    ],
)
def test_whether_the_budget_holds_the_graphs(text: str, inside: bool) -> None:
    found = start(record(text, "gpu_worker.py", who=CORE))
    assert (found.estimate_inside, found.utilization) == (inside, 0.85)


def test_a_rotated_log_is_told_from_one_that_begins() -> None:
    rotated = parse(make.ROTATED)
    assert rotated.begins_later
    assert rotated.load is not None
    assert (rotated.load.running, rotated.load.waiting, rotated.load.kv_usage) == (3, 12, 99.1)
    assert not parse(make.graphs_log() + make.ROTATED).begins_later
    assert not parse("").begins_later
    only_requests = 'INFO:     10.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n'
    assert parse(only_requests).begins_later


def test_preemptions_of_the_old_engine_are_counted() -> None:
    text = record(
        "Sequence group cmpl-1 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV "
        "cache space. total_cumulative_preemption_cnt=51",
        "scheduler.py",
    )
    load = parse(f"{make.graphs_log()}{make.stats_line()}\n{text}\n").load
    assert load is not None
    assert load.preemptions == 51


# How lines come

DECORATIONS: dict[str, Callable[[str], str]] = {
    "plain": lambda line: line,
    "the API server's times": lambda line: f"2026-09-01T10:00:00.123456789Z {line}",
    "CRI": lambda line: f"2026-09-01T10:00:00.123456789Z stderr F {line}",
    "docker": lambda line: f"2026-09-01 10:00:00.611 | {line}",
    "compose": lambda line: f"[vllm]                 | {line}",
    "compose without brackets": lambda line: f"vllm-1  | {line}",
    "colours": lambda line: f"\x1b[32m{line.replace('INFO', chr(27) + '[1mINFO' + chr(27) + '[0m')}\x1b[0m",
    "markup": lambda line: f"<b>{line}</b>",
    "JSON": lambda line: json.dumps({"message": line, "level": "x"}),
    "docker's JSON": lambda line: json.dumps(
        {"log": f"{line}\n", "stream": "stderr", "time": "2026-09-01T10:00:00Z"}
    ),
    "carriage returns": lambda line: f"{line}\r",
    "a stage": lambda line: f"[Stage-0] {line}" if line.startswith("(") else line,
    "Ray": lambda line: (
        f"(RayWorkerWrapper pid=931, ip=10.0.0.1) {line}" if line.startswith("INFO") else line
    ),
    "Ray, said once for all": lambda line: f"{line} [repeated 30x across cluster]",
}


@pytest.mark.parametrize("name", DECORATIONS)
@pytest.mark.parametrize(
    "text", [make.graphs_log(), make.v0_log(), make.eager_log()], ids=["graphs", "v0", "eager"]
)
def test_decoration_changes_nothing(name: str, text: str) -> None:
    decorated = "\n".join(DECORATIONS[name](line) for line in text.split("\n") if line)
    plain_start, found = start(text), start(decorated)
    assert of_start(found) is not None
    assert str(of_start(found)) == str(of_start(plain_start))
    assert [rank.kv for rank in found.ranks] == [rank.kv for rank in plain_start.ranks]
    assert found.ready


def test_times_of_the_reader_are_kept() -> None:
    text = "\n".join(
        f"2026-09-01T10:00:0{number}.5Z {line}"
        for number, line in enumerate(make.eager_log().split("\n")[:9])
    )
    found = parse(text)
    assert (found.first_at, found.last_at) == (
        datetime(2026, 9, 1, 10, 0, 0, tzinfo=UTC),
        datetime(2026, 9, 1, 10, 0, 8, tzinfo=UTC),
    )


def test_some_collectors_put_the_newest_line_first() -> None:
    lines = [
        record(config_line("0.22.1"), at="09-01 10:00:00", who=CORE),
        record(
            "Model loading took 15.18 GiB memory and 2.6 seconds",
            "gpu_model_runner.py",
            at="09-01 10:00:10",
            who=CORE,
        ),
        record("Available KV cache memory: 4.1 GiB", "gpu_worker.py", at="09-01 10:00:20", who=CORE),
        record(
            "Graph capturing finished in 7 secs, took 0.71 GiB",
            "gpu_model_runner.py",
            at="09-01 10:00:30",
            who=CORE,
        ),
        record(
            "init engine (profile, create kv cache, warmup model) took 50.6 s", at="09-01 10:00:31", who=CORE
        ),
    ]
    assert parse("\n".join(reversed(lines))) == parse("\n".join(lines))


def test_progress_frames_share_a_line() -> None:
    frames = "".join(
        f"Capturing CUDA graphs (decode, FULL): {n}%|#| {n}/100 [00:00<00:00]\r" for n in range(101)
    )
    found = start(f"{record(config_line('0.22.1'), who=CORE)}\n{frames}\n")
    assert Sign.CAPTURING in found.signs


def test_a_prompt_is_not_believed() -> None:
    """Old versions log prompts, and anybody may write one."""
    forged = "Graph capturing finished in 7 secs, took 0.71 GiB"
    lines = (
        make.eager_log().rstrip("\n"),
        record(
            f"Received request cmpl-1: prompt: '{forged}', params: SamplingParams(n=1)", "async_llm_engine.py"
        ),
        record(f"Note: {forged}", "app.py"),
    )
    found = mode("\n".join(lines))
    assert found is not None
    assert not found.graphs


def test_what_a_record_keeps() -> None:
    text = (
        record(
            "non-default args: {'model': 'm', 'api_key': ['sk-very-secret'], 'hf_token': 'hf_aaaaaaaaaaaa', "
            "'enforce_eager': True, 'hf_overrides': <object at 0x7f>}",
            "utils.py",
        )
        + "\n"
        + make.eager_log()
        + record("Received request cmpl-1: prompt: 'my diagnosis is', params: X", "async_llm_engine.py")
        + '\nINFO:     10.0.0.1:1 - "GET /v1/x?key=abc HTTP/1.1" 200 OK\nsome application prints a password\n'
    )
    stored = kept(text)
    for secret in ("very-secret", "hf_aaaa", "diagnosis", "key=abc", "password"):
        assert secret not in stored
    assert parse(stored).starts == parse(text).starts
    assert kept(stored) == stored


@pytest.mark.parametrize(
    "line",
    [
        "api_server.py: error: unrecognized arguments: --foo --api-key abc123 --hf-token=xyz789",
        "ValueError: No available memory for the cache blocks. api_key='abc123' token: xyz789",
        "RuntimeError: CUDA out of memory. https://me:abc123@host/xyz789?token=xyz789",
    ],
)
def test_keys_in_last_words_are_masked(line: str) -> None:
    text = make.failed_log(line)
    failure = start(text).failure
    assert failure is not None
    for shown in (failure.text, kept(text), *(quote.text for quote in start(text).quotes)):
        assert "abc123" not in shown


@pytest.mark.parametrize("text", [make.graphs_log(), make.v0_log(), make.eager_log(), make.ROTATED])
def test_what_a_record_keeps_tells_the_same(text: str) -> None:
    before, after = parse(text), parse(kept(text))
    assert (before.start and of_start(before.start)) == (after.start and of_start(after.start))
    assert [each.ranks for each in before.starts] == [each.ranks for each in after.starts]
    assert before.begins_later == after.begins_later


LOGS = [
    make.graphs_log(),
    make.eager_log(),
    make.v0_log(),
    make.ROTATED,
    make.failed_log("ValueError: No available memory for the cache blocks."),
]


@given(st.data())
def test_broken_logs_never_fail(data: st.DataObject) -> None:
    """Lines cut, doubled, shuffled, with rubbish in between."""
    text = data.draw(st.sampled_from(LOGS))
    lines = text.split("\n")
    mutated = data.draw(st.lists(st.sampled_from(lines), max_size=40))
    rubbish = data.draw(st.text(max_size=40))
    cut = data.draw(st.integers(0, 200))
    mutated = [line[: len(line) - cut] if data.draw(st.booleans()) else line for line in mutated]
    whole = rubbish.join(["", "\n".join(mutated), "\n"])
    found = parse(whole)
    assert isinstance(found, EngineLog)
    for each in found.starts:
        of_start(each)
    kept(whole)


@given(st.binary(max_size=400))
def test_bytes_of_any_kind_tell_nothing(content: bytes) -> None:
    found = parse(content.decode(errors="replace"))
    assert found.start is None or of_start(found.start) is None


@given(st.text(alphabet="enforce_eager=Tru,{}'()<:0 ", max_size=200))
def test_arguments_of_any_kind_are_read(text: str) -> None:
    parse(record(f"non-default args: {{{text}}}", "utils.py"))
    parse(record(f"Initializing a V1 LLM engine (v0.1) with config: {text}"))
