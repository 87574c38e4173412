"""What the printed role says of a rule is so: without it exactly the assertions it names can't be judged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuctl.audit.judge import Verdict
from gpuctl.audit.permissions import Grant, Purpose, grants
from gpuctl.checks.vllm_mode import CHECK
from gpuctl.facts.fact import Pages, Runs, graph
from gpuctl.facts.gather import gather
from gpuctl.vllm.baseline import MEMORY_BASELINE, baseline
from gpuctl.vllm.facts import engines_of_vllm
from tests.builders import vllm as make
from tests.checks.judging import CHAT, FORBIDDEN
from tests.checks.judging import judged_engines as judged
from tests.memory import MemoryReader
from tests.vllm.test_answers import V1_METRICS

GRANTS = grants([CHECK])
SLICED, BY_SCRIPT = "sliced-0", "script-0"
NAMES = (CHAT, SLICED, BY_SCRIPT)
COMMAND_LINE = "/usr/bin/python3\0/usr/local/bin/vllm\0serve\0acme/chat-7b\0--max-num-seqs\x008\0"
LOGS = {(name, "vllm"): make.graphs_log() for name in NAMES}
TOLD = {"/version": '{"version": "0.22.1"}', "/metrics": V1_METRICS}
ANSWERED = {(name, path): text for name in NAMES for path, text in TOLD.items()}
RAN = {(name, "vllm"): COMMAND_LINE for name in NAMES}
FILES = {"engine.yaml": "max-num-seqs: 8\n", "run.sh": "exec vllm serve acme/chat-7b --port $VLLM_MY_PORT\n"}


def mounted(**fields: Any) -> dict[str, Any]:
    return make.container(volumeMounts=[{"name": "files", "mountPath": "/etc/engine"}], **fields)


def world() -> list[dict[str, Any]]:
    """Nothing is wrong: an engine of a shared GPU, one on a slice with a file, one by a script."""
    volumes = [{"name": "files", "configMap": {"name": "files"}}]
    shared = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    small = make.container(("acme/chat-7b", "--gpu-memory-utilization", "0.3"))
    sliced = mounted(
        args=("acme/chat-7b", "--config", "/etc/engine/engine.yaml"), gpus={"nvidia.com/mig-3g.40gb": 1}
    )
    script = mounted(args=(), command=["bash", "/etc/engine/run.sh"], env={"VLLM_MY_PORT": "8000"})
    return [
        make.pod(CHAT, small, annotations={"gpuctl.dev/vllm-mode": "require-graphs"}),
        make.pod(SLICED, sliced, labels={"app": "sliced"}, volumes=volumes, node="gpu-2"),
        make.pod(BY_SCRIPT, script, labels={"app": "script"}, volumes=volumes, node="gpu-2"),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "files", "namespace": "serving"},
            "data": FILES,
        },
        make.deployment("chat", small),
        make.service("other"),
        make.node("gpu-1", shared),
        make.node("gpu-2"),
    ]


def verdicts(**changes: Any) -> dict[str, Verdict]:
    """By assertion."""
    facts = gather([engines_of_vllm], MemoryReader(world(), written=LOGS), {})
    known = (engine for _, engine in facts[engines_of_vllm].known())
    before = baseline(known, datetime(2026, 11, 1, tzinfo=UTC), "x")
    given = {"written": LOGS, "answered": ANSWERED, "arguments": {MEMORY_BASELINE: before}, **changes}
    return dict(judged(*world(), **given).by_assertion)


WITHOUT: dict[str, dict[str, Any]] = {
    "list pods": {"missing": {"pods": FORBIDDEN}},
    "list nodes": {"missing": {"nodes": FORBIDDEN}},
    "list services": {"missing": {"services": FORBIDDEN}},
    "list deployments.apps": {"missing": {"deployments.apps": FORBIDDEN}},
    "get configmaps": {"missing": {"configmaps": FORBIDDEN}},
    "get pods/log": {"written": dict.fromkeys(LOGS, FORBIDDEN)},
    "get pods/proxy": {"answered": dict.fromkeys(ANSWERED, FORBIDDEN)},
    "create pods/exec": {"ran": dict.fromkeys(RAN, FORBIDDEN)},
    "get pods/exec": {"ran": dict.fromkeys(RAN, FORBIDDEN)},
}


def test_where_nothing_is_wrong_everything_is_judged() -> None:
    assert set(verdicts(ran=RAN).values()) == {Verdict.PASS}


@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: str(grant.rule))
def test_without_a_rule_exactly_what_it_names_is_not_judged(grant: Grant) -> None:
    """What a process says makes up for a file: so they are not asked where files are at issue."""
    asked: dict[str, Any] = {} if str(grant.rule) == "get configmaps" else {"ran": RAN}
    before, after = verdicts(**asked), verdicts(**{**asked, **WITHOUT[str(grant.rule)]})
    changed = {f"{CHECK.id}/{name}" for name in after if after[name] is not before[name]}
    assert changed == {name for name in grant.assertions if before[name.partition("/")[2]] is Verdict.PASS}
    assert {after[name.partition("/")[2]] for name in changed} <= {Verdict.UNKNOWN, Verdict.NOT_PROVEN}


def test_what_asks_engines_is_named_only_where_that_is_wanted() -> None:
    named = {str(each.rule) for each in grants([CHECK], (Pages, Runs))}
    assert named == set(WITHOUT) - {"get pods/proxy", "create pods/exec", "get pods/exec"}
    assert {each.purpose for each in GRANTS} == {Purpose.READING, Purpose.PROBE, Purpose.PROXY}


def test_nothing_is_declared_about_reads_that_are_not_made() -> None:
    assert set(CHECK.needed_for) <= set(graph(CHECK.needs))
