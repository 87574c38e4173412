"""The picture of engines: a line each, bars that add up, and nothing that could harm a terminal."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from gpuctl.audit.outcome import Gate
from gpuctl.audit.policy import Policy
from gpuctl.audit.report import CheckItem, Source
from gpuctl.audit.run import Request, audit
from gpuctl.cli.selection import selected
from gpuctl.report.text import canvas
from gpuctl.report.vllm import bar, draw_engine, draw_engines, engines_json, views
from tests.builders import vllm as make
from tests.memory import MemoryReader
from tests.vllm.test_answers import V1_METRICS

HOSTILE = "\x1b[31mred\x1b[0m\u202e\n"


def checked(*items: Any, written: Any, **reader: Any) -> CheckItem:
    request = Request(selected(["vllm-mode"]), Policy(), Gate())
    door = MemoryReader([*items, make.node()], written=written, **reader)
    (found,) = audit(request, door, lambda: Source(kind="snapshot", name="memory")).checks
    return found


def shown(check: CheckItem, *, whole: bool = False) -> str:
    stream = io.StringIO()
    on = canvas(Console(file=stream, width=120))
    if whole:
        for view in views(check):
            draw_engine(view, on)
    else:
        draw_engines(views(check), check, on)
    return stream.getvalue()


GRAPHS, EAGER = make.pod("graphs", labels={}), make.pod("eager", labels={})
WRITTEN = {("graphs", "vllm"): make.graphs_log(), ("eager", "vllm"): make.eager_log()}


@pytest.mark.parametrize(
    ("rank", "drawn"),
    [
        ({"totalGib": 20.0, "weightsGib": 10.0, "kvGib": 5.0}, "[WWWWWWWWWWKKKKK.....]"),
        (
            {"totalGib": 20.0, "weightsGib": 15.0, "activationGib": 1.0, "kvGib": 2.0, "graphsGib": 0.3},
            "[WWWWWWWWWWWWWWWAKKG.]",
        ),
        ({"totalGib": 20.0, "consumedGib": 12.0, "weightsGib": 10.0, "kvGib": 8.0}, "[WWWWWWWWWWAAKKKKKKKK]"),
        ({"totalGib": 20.0, "weightsGib": 19.0, "kvGib": -7.8}, "[WWWWWWWWWWWWWWWWWWW.]"),
        ({"totalGib": 10.0, "weightsGib": 30.0}, f"[{'W' * 20}]"),
        ({"weightsGib": 30.0}, ""),
        ({"totalGib": 0.0}, ""),
    ],
)
def test_a_bar_is_as_long_as_the_gpu(rank: dict[str, float], drawn: str) -> None:
    assert bar(rank) == drawn


def test_a_line_for_each_engine() -> None:
    text = shown(checked(GRAPHS, EAGER, written=WRITTEN))
    lines = {line.split()[0]: line for line in text.split("\n") if line.startswith("serving/")}
    assert "graphs (FULL_AND_PIECEWISE)" in lines["serving/graphs"]
    assert lines["serving/graphs"].rstrip().endswith("ok")
    assert lines["serving/eager"].rstrip().endswith("warning VLM004")
    assert "2 engines: 1 with graphs, 1 eager" in text


def test_a_finding_is_told_of_its_own_container_alone() -> None:
    """The name of one may begin with that of another."""
    two = make.pod("two", make.container(name="vllm"), make.container(name="vllm-2"), labels={})
    written = {("two", "vllm"): make.graphs_log(), ("two", "vllm-2"): make.eager_log()}
    verdicts = {view.name: view.verdict for view in views(checked(two, written=written))}
    assert verdicts == {"serving/two/vllm": "ok", "serving/two/vllm-2": "warning VLM004"}


def test_one_in_full_with_its_evidence() -> None:
    text = shown(checked(EAGER, written=WRITTEN), whole=True)
    for words in ("Enforce eager set", "weights", "32.96 requests of full length", "VLM004", "look  kubectl"):
        assert words in text


def test_what_is_not_known_is_said() -> None:
    text = shown(checked(GRAPHS, written=None))
    assert "inferred" in text
    assert "logs are read only with consent" in text
    opaque = make.pod("own", make.container([], command=["python", "app.py"]), labels={})
    assert "not proven" in shown(checked(opaque, written=None))


def test_the_same_as_data() -> None:
    (found,) = json.loads(engines_json(views(checked(GRAPHS, written=WRITTEN))))
    assert (found["pod"], found["verdict"], found["mode"]["graphs"]) == ("graphs", "ok", True)


def test_names_from_a_cluster_are_harmless() -> None:
    log = make.graphs_log().replace("acme/chat-7b", f"evil{HOSTILE}")
    pod = make.pod("graphs", make.container(["m"], image=f"vllm/vllm-openai:{HOSTILE}"), labels={})
    for whole in (False, True):
        text = shown(checked(pod, written={("graphs", "vllm"): log}), whole=whole)
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_what_an_engine_says_now_goes_before_what_its_log_said() -> None:
    logged = {("graphs", "vllm"): make.graphs_log() + make.stats_line(4.6, 1, 0) + "\n"}
    before = shown(checked(GRAPHS, written=logged), whole=True)
    assert "1 running, 0 waiting, KV cache 4.6 % in use" in before
    now = checked(GRAPHS, written=logged, answered={("graphs", "/metrics"): V1_METRICS})
    assert "now, by /metrics: 3 running, 12 waiting, KV cache 99.1 % in use, 7 preemptions" in shown(
        now, whole=True
    )


def test_what_its_process_says_is_told_from_what_its_pod_says() -> None:
    line = "python3\0/usr/local/bin/vllm\0serve\0acme/chat-7b\0--enforce-eager\0"
    text = shown(checked(GRAPHS, written={}, ran={("graphs", "vllm"): line}), whole=True)
    assert "by its process  eager" in text
    assert "by its spec     graphs" in text
    assert "by its process" not in shown(checked(GRAPHS, written={}), whole=True)
