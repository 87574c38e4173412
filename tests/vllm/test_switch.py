"""How an engine is switched: what is changed in its container, and what is refused with its reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuctl.facts.kinds import Meta
from gpuctl.facts.state import NotKnown
from gpuctl.vllm.engines import Found, engines
from gpuctl.vllm.objects import EngineContainer, EnginePod, EngineSpec
from gpuctl.vllm.switch import Edit, edited, stands, switch
from tests.builders import vllm as make

RUNPOD = "runpod/worker-v1-vllm:v2.7.0"
SAGEMAKER = "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.11-sagemaker"
MODEL = "acme/chat-7b"


def found(*args: str, **more: Any) -> Found:
    raw = make.container(args or (MODEL,), **more)
    if not raw["args"]:
        del raw["args"]
    container = msgspec.convert(raw, EngineContainer)
    (only,) = engines(EnginePod(Meta("chat", "serving"), EngineSpec(containers=(container,))))
    return only


def after(engine: Found, *, graphs: bool) -> EngineContainer:
    change = switch(engine, graphs=graphs)
    assert change.before.graphs is not graphs
    assert change.after.graphs is graphs
    assert all(stands(engine.container, each) == each.before for each in change.edits)
    changed = edited(engine.container, change.edits)
    assert all(stands(changed, each) == each.after for each in change.edits)
    assert all(str(each) for each in change.edits)
    back = tuple(Edit(each.path, each.after, each.before, each.named) for each in change.edits)
    assert edited(changed, back) == engine.container
    return changed


def test_the_flag_is_added_and_taken_out() -> None:
    assert after(found(MODEL), graphs=False).args == (MODEL, "--enforce-eager")
    assert after(found(MODEL, "--enforce-eager", "--seed=1"), graphs=True).args == (MODEL, "--seed=1")
    assert after(found(MODEL, "--enforce_eager"), graphs=True).args == (MODEL,)
    assert after(found(MODEL, "--no-enforce-eager"), graphs=False).args == (MODEL, "--enforce-eager")


def test_in_the_command_where_there_are_no_arguments() -> None:
    command = ["vllm", "serve", MODEL]
    engine = found(command=command)
    engine = Found(
        engine.ref,
        engine.pod,
        msgspec.structs.replace(engine.container, args=None),
        engine.stack,
        engine.by,
    )
    assert after(engine, graphs=False).command == (*command, "--enforce-eager")


def test_the_variable_of_a_wrapper_is_set() -> None:
    runpod = found(image=RUNPOD, env={"ENFORCE_EAGER": "true"}, command=["vllm", "serve"])
    assert after(runpod, graphs=True).env[0].value == "false"
    back = found(image=RUNPOD, env={"ENFORCE_EAGER": "0"}, command=["vllm", "serve"])
    assert after(back, graphs=False).env[0].value == "true"


@pytest.mark.parametrize(
    ("engine", "graphs", "why"),
    [
        (found(MODEL), True, "is configured for graphs"),
        (found(MODEL, "--enforce-eager"), False, "is configured for eager already"),
        (found("-c", f"vllm serve {MODEL} --enforce-eager", command=["sh"]), True, "nothing in its own spec"),
        (found("-c", f"vllm serve {MODEL}", command=["sh"]), False, "nothing in its own spec"),
        (found(MODEL, "--config", "/etc/vllm.yaml"), False, "--config file /etc/vllm.yaml may decide it"),
        (found(MODEL, '-cc={"cudagraph_mode": "NONE"}'), True, "nothing in its own spec"),
        (found(command=["/app/start.sh"]), True, "/app/start.sh, which can't be read"),
        (found(MODEL, image="vllm/vllm-openai-cpu:v0.22.1"), True, "nothing in its own spec"),
        (found(MODEL, envFrom=[{"configMapRef": {"name": "x"}}]), False, "envFrom"),
        (found(MODEL, image="nvcr.io/nim/meta/llama:1.8"), False, "a NIM chooses"),
        (found(MODEL, "-O1", image="acme/vllm-openai:latest"), False, "depends on the version"),
    ],
)
def test_what_is_not_plain_is_refused_with_its_reason(engine: Found, graphs: bool, why: str) -> None:
    with pytest.raises(NotKnown, match=why.replace("(", "\\(").replace("--", "\\-\\-")):
        switch(engine, graphs=graphs)


def test_what_stands_elsewhere_is_not_taken_for_the_variable() -> None:
    engine = found(image=RUNPOD, env={"ENFORCE_EAGER": "true"}, command=["vllm", "serve"])
    (edit,) = switch(engine, graphs=True).edits
    moved = msgspec.structs.replace(engine.container, env=())
    assert stands(moved, edit) is None
