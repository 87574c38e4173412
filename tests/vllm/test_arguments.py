"""From a container's words to settings, and from settings to a mode."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.vllm import version as versions
from gpuctl.vllm.arguments import of_config, of_environment, of_words
from gpuctl.vllm.configured import configured
from gpuctl.vllm.launch import Launch, expanded, launch, variables
from gpuctl.vllm.objects import EngineContainer

SCRIPTS = {"/scripts/start.sh": '#!/bin/sh\nset -e\nexec vllm serve acme/chat "$@" --enforce-eager\n'}


def container(**fields: Any) -> EngineContainer:
    return msgspec.convert({"name": "vllm", **fields}, EngineContainer)


def launched(entrypoint: bool = True, **fields: Any) -> Launch:
    made = container(**fields)
    return launch(made, variables(made), entrypoint=entrypoint, files=SCRIPTS.get)


def env(**values: str) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


HIDDEN = {"name": "EXTRA", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"args": ["--model", "m"]}, ("--model", "m")),
        ({"args": ["serve", "m"]}, ("m",)),
        ({"command": ["vllm", "serve", "m"], "args": ["--x"]}, ("m", "--x")),
        ({"command": ["/opt/venv/bin/vllm", "serve", "m"]}, ("m",)),
        (
            {"command": ["python3", "-m", "vllm.entrypoints.openai.api_server"], "args": ["--model=m"]},
            ("--model=m",),
        ),
        ({"command": ["python3 -m vllm.entrypoints.openai.api_server --model m"]}, ("--model", "m")),
        ({"command": ["python", "-m", "huggingfaceserver"], "args": ["--backend=vllm"]}, ("--backend=vllm",)),
        ({"args": ["--tp=$(TP)", "$$(TP)"], "env": env(TP="4")}, ("--tp=4", "$(TP)")),
        ({"args": ["$(B)"], "env": env(A="1", B="$(A)2")}, ("12",)),
        ({"command": ["sh", "-c", "exec vllm serve m --a b"]}, ("m", "--a", "b")),
        (
            {"command": ["/bin/bash", "-lc"], "args": ["vllm serve ${M:-m} $Q"], "env": env(Q="--a b")},
            ("m", "--a", "b"),
        ),
        ({"command": ["bash", "-c", "vllm serve m $@", "--"], "args": ["--x"]}, ("m", "--x")),
        (
            {"command": ["sh", "-c", "A='--a b'; A+=' --c'\nvllm serve m $A # --no\n"]},
            ("m", "--a", "b", "--c"),
        ),
        ({"command": ["sh", "-c", 'CMD="vllm serve m"\neval "$CMD --x"']}, ("m", "--x")),
        ({"command": ["sh", "-c", "sleep 5 && vllm serve m \\\n  --x || true"]}, ("m", "--x")),
        (
            {
                "command": ["bash", "-c", 'eval "exec vllm serve /mnt/models ${VLLM_ADDITIONAL_ARGS} --y"'],
                "env": env(VLLM_ADDITIONAL_ARGS="--enforce-eager"),
            },
            ("/mnt/models", "--enforce-eager", "--y"),
        ),
        ({"command": ["/scripts/start.sh"], "args": ["--y"]}, ("acme/chat", "--y", "--enforce-eager")),
        ({"command": ["bash", "/scripts/start.sh"]}, ("acme/chat", "--enforce-eager")),
        ({"command": ["sh", "-c", "vllm() { sleep 1; }; vllm serve m --x"]}, ("m", "--x")),
    ],
)
def test_the_words_vllm_is_started_with(fields: dict[str, Any], words: tuple[str, ...]) -> None:
    found = launched(**fields)
    assert (found.words, found.opaque) == (words, "")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"command": ["python", "app.py"]}, "it starts app.py, which can't be read"),
        ({"command": ["/opt/run.sh"]}, "it starts /opt/run.sh, which can't be read"),
        ({"command": ["sh", "-c", "vllm serve 'm"]}, "its script does not parse: No closing quotation"),
        ({"command": ["sh", "-c", "vllm serve m $EXTRA"], "env": [HIDDEN]}, "$EXTRA is not known"),
        (
            {"command": ["sh", "-c", "vllm serve m $EXTRA"], "envFrom": [{"secretRef": {}}]},
            "$EXTRA is not known",
        ),
        ({"args": ["m", "$(EXTRA)"], "env": [HIDDEN]}, "$EXTRA is not known"),
        ({"command": ["sh", "-c", "vllm serve m $(cat /flags)"]}, "$output_of_a_command is not known"),
        (
            {"command": ["sh", "-c", "if a; then vllm serve m; else vllm serve m --enforce-eager; fi"]},
            "its script starts vLLM in several ways",
        ),
    ],
)
def test_what_can_not_be_seen_is_said(fields: dict[str, Any], why: str) -> None:
    assert launched(**fields).opaque == why


def test_a_hidden_value_of_a_flag_hides_no_flags() -> None:
    assert launched(args=["m", "--api-key", "$(EXTRA)"], env=[HIDDEN]).opaque == ""
    assert launched(command=["sh", "-c", "vllm serve $EXTRA --port 8000"], env=[HIDDEN]).opaque == ""


def test_the_kubelets_expansion() -> None:
    assert expanded("a $(X) $$(X) $(Y) $X", {"X": "1"}) == "a 1 $(X) $(Y) $X"


@pytest.mark.parametrize(
    ("words", "eager"),
    [
        (["--enforce-eager"], True),
        (["--enforce_eager"], True),
        (["--enforce-eager", "--no-enforce-eager"], False),
        (["--no-enforce-eager", "--enforce-eager"], True),
        (["--model", "--enforce-eager"], True),
        (["--chat-template", "enforce-eager"], False),
        (["--enforce-eager=true"], False),
        ([], False),
    ],
)
def test_the_last_word_wins(words: list[str], eager: bool) -> None:
    assert (of_words(words).eager is not None) is eager


def test_what_argparse_refuses_is_noted() -> None:
    assert of_words(["--enforce-eager=true"]).wrong == ("--enforce-eager=true",)


@pytest.mark.parametrize(
    ("words", "version", "mode"),
    [
        ([], "0.8.5", "graphs"),
        ([], "0.10.2", "graphs (PIECEWISE)"),
        ([], "0.11.0", "graphs (FULL_AND_PIECEWISE)"),
        ([], None, "graphs"),
        (["--enforce-eager"], None, "eager"),
        (["--compilation-config", '{"cudagraph_mode": "NONE"}'], "0.11.0", "eager"),
        (['--compilation-config={"cudagraph_mode":"PIECEWISE"}'], "0.11.0", "graphs (PIECEWISE)"),
        (["-cc.cudagraph_mode=none"], "0.14.0", "eager"),
        (["-cc.cudagraph_mode", "FULL_DECODE_ONLY"], "0.14.0", "graphs (FULL_DECODE_ONLY)"),
        (["--compilation-config.cudagraph_mode", "none"], "0.14.0", "eager"),
        (["-cc.mode=none"], "0.14.0", "eager"),
        (["-cc.mode=0"], "0.12.0", "eager"),
        (["-cc.mode=DYNAMO_TRACE_ONCE"], "0.14.0", "eager"),
        (["-cc.mode=VLLM_COMPILE"], "0.14.0", "graphs (FULL_AND_PIECEWISE)"),
        (["-cc.mode=3"], None, "graphs"),
        (["-cc.mode=none"], None, None),
        (["-cc.mode=none", "-cc.cudagraph_mode=FULL"], "0.14.0", "graphs (FULL)"),
        (["-cc.mode=0", "-cc.cudagraph_mode=full_decode_only"], "0.14.0", "graphs (FULL_DECODE_ONLY)"),
        (["-cc", '{"mode": 0, "cudagraph_mode": 2}'], "0.14.0", "graphs (FULL)"),
        (["-cc", '{"mode": 0, "cudagraph_mode": [2, 0]}'], "0.14.0", "graphs (FULL_DECODE_ONLY)"),
        (["-cc.mode=none", "-cc.cudagraph_mode=FULL"], None, "graphs (FULL)"),
        (["-cc.mode=none", "-cc.cudagraph_mode=PIECEWISE"], "0.14.0", "eager"),
        (["-cc.mode=none", "-cc.cudagraph_mode=FULL_AND_PIECEWISE"], "0.14.0", "eager"),
        (["-cc.mode=none", "-cc.cudagraph_mode=PIECEWISE"], None, None),
        (["-O2", "-cc.mode=none"], "0.14.0", "eager"),
        (["-O2", "-cc.mode=none", "-cc.cudagraph_mode=FULL"], "0.14.0", "graphs (FULL)"),
        (["-O.use_cudagraph=false"], "0.9.0", "eager"),
        (["-O", '{"use_cudagraph": false}'], "0.9.0", "eager"),
        (["-O0"], "0.9.0", "graphs"),
        (["-O0"], "0.11.0", None),
        (["-O0"], "0.12.0", "eager"),
        (["-O", "0"], "0.12.0", "eager"),
        (["-O=0"], "0.12.0", "eager"),
        (["--optimization-level", "0"], "0.12.0", "eager"),
        (["-O1"], "0.12.0", "graphs (PIECEWISE)"),
        (["-O3"], "0.12.0", "graphs (FULL_AND_PIECEWISE)"),
        (["-O3"], "0.9.0", "graphs"),
        (["-O0"], None, None),
        (["-O0", "-cc.cudagraph_mode=FULL"], "0.14.0", "graphs (FULL)"),
        (["-O0", "-cc.cudagraph_mode=PIECEWISE"], "0.14.0", "eager"),
        (["-O0", "-cc.cudagraph_mode=PIECEWISE", "-cc.mode=3"], "0.14.0", "graphs (PIECEWISE)"),
        (["-O1", "-cc.cudagraph_mode=PIECEWISE"], "0.14.0", "graphs (PIECEWISE)"),
        (["--compilation-config", "3"], "0.9.0", "graphs"),
        (["--compilation-config", "0"], "0.9.0", "graphs"),
        (["--compilation-config", "0"], "0.11.0", None),
        (["-O.level=0"], "0.11.0", None),
        (["--compilation-config", '{"level": 1}'], "0.14.0", None),
        (["--compilation-config", '{"level": 0, "cudagraph_mode": "FULL"}'], "0.11.0", "graphs (FULL)"),
    ],
)
def test_arguments_by_version(words: list[str], version: str | None, mode: str | None) -> None:
    found = configured(of_words(words), {}, versions.parse(version) if version else None)
    assert (str(found) if found else None) == mode


@pytest.mark.parametrize(
    ("words", "more", "version", "mode"),
    [
        ([], {}, "0.12.0", "eager"),
        ([], {}, "0.9.0", "graphs"),
        ([], {}, None, None),
        ([], {"TORCH_COMPILE_DISABLE": "0"}, None, "graphs"),
        ([], {"TORCH_COMPILE_DISABLE": "true"}, "0.12.0", "graphs (FULL_AND_PIECEWISE)"),
        (["-cc.cudagraph_mode=FULL"], {}, "0.12.0", "graphs (FULL)"),
        (["-cc.cudagraph_mode=FULL_DECODE_ONLY"], {}, None, "graphs (FULL_DECODE_ONLY)"),
        (["-cc.cudagraph_mode=FULL_AND_PIECEWISE"], {}, "0.12.0", "eager"),
        (["-cc.cudagraph_mode=NONE"], {}, None, "eager"),
        (["-cc.mode=3"], {}, "0.12.0", "eager"),
        (["--enforce-eager"], {}, None, "eager"),
        ([], {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}, "0.24.0", None),
        ([], {"VLLM_USE_BREAKABLE_CUDAGRAPH": "0"}, "0.24.0", "eager"),
    ],
)
def test_compilation_off_takes_the_graphs_with_it_that_need_it(
    words: list[str], more: dict[str, str], version: str | None, mode: str | None
) -> None:
    switched = {"TORCH_COMPILE_DISABLE": "1", **more}
    found = configured(of_words(words), switched, versions.parse(version) if version else None)
    assert (str(found) if found else None) == mode


def test_the_command_line_goes_before_the_file() -> None:
    file = of_config(
        {"enforce-eager": True, "gpu_memory_utilization": 0.8, "compilation-config": {"a": 1}}, "/c.yaml"
    )
    assert file.eager is not None
    assert file.eager.origin == "/c.yaml: enforce-eager"
    both = of_words(["--no-enforce-eager", "--gpu-memory-utilization", "0.7"]).over(file)
    assert (both.eager, both.utilization) == (None, 0.7)


@pytest.mark.parametrize(
    ("environment", "image", "eager"),
    [
        ({"SM_VLLM_ENFORCE_EAGER": "true"}, "vllm:x", True),
        ({"SM_VLLM_ENFORCE_EAGER": "false"}, "vllm:x", False),
        ({"ENFORCE_EAGER": "1"}, "runpod/worker-v1-vllm:v2", True),
        ({"ENFORCE_EAGER": "1"}, "vllm/vllm-openai:v0.11.0", False),
        ({"NIM_DISABLE_CUDA_GRAPH": "1"}, "nvcr.io/nim/meta/llama:1", True),
        ({"NIM_PASSTHROUGH_ARGS": "--enforce-eager"}, "nvcr.io/nim/meta/llama:1", True),
        ({"VLLM_ENFORCE_EAGER": "1"}, "vllm/vllm-openai:v0.11.0", False),
    ],
)
def test_variables_of_wrappers(environment: dict[str, str], image: str, eager: bool) -> None:
    assert (of_environment(environment, image).eager is not None) is eager


@given(
    st.lists(
        st.sampled_from(["--enforce-eager", "-O", "-O0", "-cc", "--config", "x", "{", "--", "-", "=", "-5"])
        | st.text(max_size=8)
    )
)
def test_any_words_are_read(words: list[str]) -> None:
    configured(of_words(words), {}, versions.parse("0.14.0"))


@given(st.text(alphabet="vllm serve$({})'\"\\;&|\n#=-A @", max_size=120))
def test_any_script_is_read(script: str) -> None:
    launched(command=["sh", "-c", script])


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    )
)
def test_any_file_is_read(tree: Any) -> None:
    of_config(tree, "/c.yaml")
