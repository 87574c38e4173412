"""Findings that a runbook cures name it, with a command that the runbook takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest

from gpuctl.audit.finding import Finding
from gpuctl.audit.policy import ChecksPolicy, Policy, VllmModePolicy
from gpuctl.runbook.catalogue import runbook
from tests.builders import vllm as make
from tests.builders.kueue import Cluster, healthy
from tests.builders.queues import GPU, World, pods
from tests.checks.judging import CHAT, judged_engines, judged_queues, judged_webhooks

RESTART = "gpuctl plan kueue-restart kueue-system/kueue-controller-manager"
LIMIT = "gpuctl plan queue-limit"


def stale() -> Cluster:
    cluster = healthy()
    for item in cluster.all("MutatingWebhookConfiguration"):
        if "kueue" in item["metadata"]["name"]:
            for hook in item["webhooks"]:
                hook["clientConfig"]["caBundle"] = ""
    return cluster


def queues(own: dict[str, str], late: int) -> World:
    made = World()
    made.namespace("team-a")
    made.flavor()
    made.queue("vision", {"h100": {GPU: own}}, cohort="all", used={"h100": {GPU: "2"}})
    made.queue("research", {"h100": {GPU: "4"}}, cohort="all")
    made.local_queue()
    made.workload("late", pod_sets=[pods({GPU: late})], waits=timedelta(hours=3))
    return made


def held() -> World:
    made = World()
    made.namespace("team-a")
    made.flavor()
    made.node()
    made.queue("vision", used={"h100": {GPU: "8"}})
    made.local_queue()
    made.admitted("long", 8, since=timedelta(hours=30))
    made.workload("late", waits=timedelta(minutes=5))
    return made


def engine(mode: str, *args: str, owner: str = "ReplicaSet") -> Iterable[Finding]:
    policy = Policy(checks=ChecksPolicy(vllm_mode=VllmModePolicy(mode=mode)))  # type: ignore[arg-type]
    pod = make.pod(CHAT, make.container(["acme/chat-7b", *args]))
    pod["metadata"]["ownerReferences"][0]["kind"] = owner
    text = make.eager_log() if args else make.graphs_log()
    return judged_engines(pod, make.deployment(), policy=policy, written={(CHAT, "vllm"): text}).findings


@pytest.mark.parametrize(
    ("findings", "book", "command"),
    [
        (lambda: judged_webhooks(stale()).findings, "kueue-restart", RESTART),
        (
            lambda: judged_queues(queues({"nominalQuota": "2", "borrowingLimit": "0"}, 5)).findings,
            "queue-limit",
            f"{LIMIT} vision --flavor h100 --resource nvidia.com/gpu --borrowing-limit 3",
        ),
        (
            lambda: judged_queues(held()).findings,
            "queue-limit",
            f"{LIMIT} job/team-a/long --deadline 194400",
        ),
        (
            lambda: engine("require-graphs", "--enforce-eager"),
            "vllm-switch-mode",
            "gpuctl plan vllm-switch-mode serving/chat --to graphs",
        ),
        (
            lambda: engine("require-eager"),
            "vllm-switch-mode",
            "gpuctl plan vllm-switch-mode serving/chat --to eager",
        ),
    ],
)
def test_a_finding_names_the_runbook_and_its_command(
    findings: Callable[[], Iterable[Finding]], book: str, command: str
) -> None:
    named = [each for each in findings() if each.runbook == book]
    assert named
    assert any(f"`{command}`" in each.remedy for each in named)
    _verb, _plan, name, _target, *rest = shlex.split(command)
    assert {word for word in rest if word.startswith("--")} <= {each.flag for each in runbook(name).flags}


def all_findings() -> Iterable[Finding]:
    yield from judged_webhooks(stale()).findings
    yield from judged_queues(queues({"nominalQuota": "2", "borrowingLimit": "0"}, 5)).findings
    yield from judged_queues(held()).findings
    yield from engine("require-graphs", "--enforce-eager")
    yield from engine("require-eager")


def test_a_command_in_a_remedy_is_named_by_its_finding_and_the_other_way_round() -> None:
    for each in all_findings():
        commands = re.findall(r"`gpuctl plan ([\w-]+)", each.remedy)
        assert bool(commands) is (each.runbook is not None), each.remedy
        assert each.runbook is None or each.runbook in commands


def test_what_no_runbook_cures_names_none() -> None:
    assert {each.runbook for each in judged_webhooks(healthy()).findings} <= {None}
    plain = judged_queues(queues({"nominalQuota": "2"}, 9)).findings
    assert {each.runbook for each in plain} <= {None}
    set_ = [each for each in engine("require-eager", owner="LeaderWorkerSet") if each.code.id == "VLM002"]
    assert {each.runbook for each in set_} <= {None}
