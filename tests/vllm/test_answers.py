"""What engines answer when they are asked: by version, reduced, and never a traceback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.facts.kinds import Ref
from gpuctl.facts.pods import Page, Run
from gpuctl.vllm import answers
from gpuctl.vllm.answers import Metered, kept_of_page, kept_of_run, of_page, of_run
from gpuctl.vllm.log import Start
from gpuctl.vllm.mode import of_start
from gpuctl.vllm.objects import EnginePod

POD = Ref(EnginePod.of, "chat", "serving")
VERSION, METRICS, INFO = (Page(POD, 8000, path) for path in answers.PATHS)
RUN = Run(POD, "vllm", answers.COMMAND_LINE)

V1_METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="acme/chat-7b"} 3.0
vllm:num_requests_waiting{engine="0",model_name="acme/chat-7b"} 12.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="acme/chat-7b",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="acme/chat-7b"} 0.991
vllm:num_preemptions_total{engine="0",model_name="acme/chat-7b"} 7.0
vllm:num_preemptions_created{engine="0",model_name="acme/chat-7b"} 1.7e+09
vllm:cache_config_info{block_size="16",engine="0",gpu_memory_utilization="0.85",num_gpu_blocks="14022"} 1.0
"""
V0_METRICS = """\
vllm:num_requests_running{model_name="m"} 1.0
vllm:num_requests_waiting{model_name="m"} 0.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:num_preemptions_total{model_name="m"} 0.0
vllm:cache_config_info{block_size="16",gpu_memory_utilization="0.9",num_gpu_blocks="None"} 1.0
"""


def test_the_version() -> None:
    assert of_page(VERSION, '{"version": "0.22.1"}') == "0.22.1"
    assert kept_of_page(VERSION, '{"version": "0.22.1", "more": "x"}') == '{"version": "0.22.1"}'
    assert of_page(VERSION, '{"version": "0.1.dev15312+g690e127b1"}') == "0.1.dev15312+g690e127b1"


def test_how_busy_an_engine_is_and_how_large_its_cache() -> None:
    assert of_page(METRICS, V1_METRICS) == Metered(3, 12, 0.991, 7, 14022 * 16, 0.85)


def test_older_versions_call_it_otherwise_and_may_not_know_their_blocks() -> None:
    assert of_page(METRICS, V0_METRICS) == Metered(1, 0, 0.25, 0, None, 0.9)


def test_several_engines_behind_one_port_add_up() -> None:
    second = V1_METRICS.replace('engine="0"', 'engine="1"').replace("0.991", "0.5")
    assert of_page(METRICS, V1_METRICS + second) == Metered(6, 24, 0.991, 14, 2 * 14022 * 16, 0.85)


def test_newer_versions_say_the_tokens() -> None:
    text = 'vllm:cache_config_info{block_size="16",kv_cache_size_tokens="224353",num_gpu_blocks="1"} 1.0'
    assert of_page(METRICS, text) == Metered(kv_tokens=224353)


def info(eager: Any = False, graphs: Any = (2, 1), **more: Any) -> str:
    config = {
        "model_config": {
            "model": "acme/chat-7b",
            "enforce_eager": eager,
            "max_model_len": 8192,
            "hf_token": "hf_x",
        },
        "speculative_config": {"enforce_eager": True},
        "compilation_config": {"mode": 3, "cudagraph_mode": graphs},
        "parallel_config": {"tensor_parallel_size": 2, "pipeline_parallel_size": 1, "data_parallel_size": 1},
        "cache_config": {"gpu_memory_utilization": 0.85},
        "device_config": {"device_type": "cuda"},
    }
    return json.dumps(
        {"vllm_config": config, "vllm_env": {"VLLM_API_KEY": "sk-secret-secret-secret"}, **more}
    )


OLD = (
    "model='acme/chat-7b', speculative_config=None, max_seq_len=8192, tensor_parallel_size=2, "
    "enforce_eager={}, device_config=cuda, compilation_config={{'mode': <CompilationMode.VLLM_COMPILE: 3>, "
    "'cudagraph_mode': <CUDAGraphMode.{}>}}"
)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (info(), "graphs (FULL_AND_PIECEWISE)"),
        (info(graphs=[2, 0]), "graphs (FULL_DECODE_ONLY)"),
        (info(graphs="CUDAGraphMode.PIECEWISE"), "graphs (PIECEWISE)"),
        (info(graphs="FULL"), "graphs (FULL)"),
        (info(graphs=0), "eager"),
        (info(eager=True, graphs=0), "eager"),
        (info(eager=True, graphs=None), "eager"),
        (
            json.dumps({"vllm_config": OLD.format("False", "FULL_AND_PIECEWISE: (2, 1)")}),
            "graphs (FULL_AND_PIECEWISE)",
        ),
        (json.dumps({"vllm_config": OLD.format("True", "NONE: 0")}), "eager"),
    ],
)
def test_the_mode_of_server_info(text: str, mode: str) -> None:
    told = of_page(INFO, text)
    assert isinstance(told, Start)
    found = of_start(told)
    assert (str(found), found.confidence if found else None) == (mode, "configured")
    assert told.tensor_parallel == 2
    assert told.max_model_len == 8192


@pytest.mark.parametrize(
    ("page", "text"),
    [(METRICS, V1_METRICS), (METRICS, V0_METRICS), (INFO, info()), (INFO, info(eager=True)),
     (INFO, json.dumps({"vllm_config": OLD.format("False", "NONE: 0")}))],
)  # fmt: skip
def test_what_is_kept_is_less_and_tells_the_same(page: Page, text: str) -> None:
    kept = kept_of_page(page, text)
    assert of_page(page, kept) == of_page(page, text)
    assert len(kept) < len(text)
    for secret in ("sk-secret", "hf_x", "VLLM_API_KEY", "model_name"):
        assert secret not in kept


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (VERSION, '{"version": 3}'),
        (VERSION, "<html>"),
        (VERSION, "[]"),
        (VERSION, '{"version": "not one"}'),
        (METRICS, ""),
        (METRICS, "process_cpu_seconds_total 3\n"),
        (METRICS, "vllm:num_requests_running NaN"),
        (INFO, "{}"),
        (INFO, '{"vllm_config": {}}'),
        (INFO, '{"vllm_config": {"model_config": {"enforce_eager": "perhaps"}}}'),
        (INFO, '{"vllm_config": 3}'),
        (INFO, "[" * 100_000),
    ],
)
def test_what_is_no_answer_of_vllms(page: Page, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        of_page(page, text)


@given(st.sampled_from([VERSION, METRICS, INFO]), st.sampled_from([V1_METRICS, info(), "{}"]), st.data())
def test_broken_answers_are_refused_and_no_crash(page: Page, text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    broken = text[:start] + data.draw(st.text(max_size=20)) + text[end:]
    try:
        told = of_page(page, broken)
    except ValueError:
        return
    assert of_page(page, kept_of_page(page, broken)) == told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/usr/bin/python3\0/usr/local/bin/vllm\0serve\0acme/chat-7b\0--enforce-eager\0",
         ("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "acme/chat-7b", "--enforce-eager")),
        ("vllm serve 'a model' --port 8001", ("vllm", "serve", "a model", "--port", "8001")),
        ("/bin/bash\0-c\0export HF_TOKEN=hf_abcdefghijklmnop; ./run\0", ("/bin/bash",)),
        ("/pause\0", ("/pause",)),
    ],
)  # fmt: skip
def test_the_words_of_a_process(text: str, words: tuple[str, ...]) -> None:
    assert of_run(RUN, text) == words
    assert of_run(RUN, kept_of_run(RUN, text)) == words


@pytest.mark.parametrize("text", ["", "\0", "'unfinished"])
def test_a_process_without_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        of_run(RUN, text)
