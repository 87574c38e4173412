"""Eager or graphs: how it is known, what is required, and what nobody asked for."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from gpuctl.audit.policy import BUILT_IN, ChecksPolicy, Policy, VllmModePolicy, VllmRequirement
from gpuctl.facts.state import Reason, Unknown
from tests.builders import vllm as make
from tests.checks.judging import CHAT
from tests.checks.judging import judged_engines as judged

EAGER = {(CHAT, "vllm"): make.eager_log()}
GRAPHS = {(CHAT, "vllm"): make.graphs_log()}


def policy(mode: Any = "report", *requirements: VllmRequirement) -> Policy:
    section = VllmModePolicy(mode=mode, requirements=requirements)
    return Policy(checks=ChecksPolicy(vllm_mode=section))


def test_a_healthy_engine_is_no_finding_but_the_strict_reading() -> None:
    found = judged(make.pod(), make.deployment())
    assert found.verdict == Verdict.PASS
    assert found.codes == ["VLM003"]
    assert found.one("VLM003").weight == Severity.INFO
    assert found.engine["mode"]["confidence"] == "observed"
    assert {verdict.verdict for verdict in found.judgements} <= {Verdict.PASS, Verdict.NOT_APPLICABLE}


def test_without_engines_the_check_does_not_apply() -> None:
    other = make.pod("web-1", make.container(["nginx"], name="web", image="nginx:1", gpus={}))
    assert judged(other).verdict == Verdict.NOT_APPLICABLE


def test_the_modes_by_what_shows_them() -> None:
    modes = [
        judged(make.pod(), written=GRAPHS).engine["mode"],
        judged(make.pod(), written={(CHAT, "vllm"): make.record(make.config_line("0.22.1"))}).engine,
        judged(make.pod(), written=None).engine["mode"],
        judged(make.pod(), written={(CHAT, "vllm"): make.ROTATED}).engine["mode"],
    ]
    assert [mode.get("confidence") for mode in modes] == ["observed", None, "inferred", "inferred"]
    assert modes[1]["state"] == "starting"
    assert modes[1]["mode"]["confidence"] == "configured", "seen so far, and not judged"


def test_a_configuration_line_of_a_failed_start_is_configured() -> None:
    text = make.failed_log("ValueError: No available memory for the cache blocks.", version="0.22.1")
    found = judged(make.pod(ready=False, restarts=3), written={(CHAT, "vllm"): text})
    assert found.engine["mode"]["confidence"] == "configured"


@pytest.mark.parametrize(
    ("mode", "written", "args", "code"),
    [
        ("require-graphs", EAGER, ("m", "--enforce-eager"), "VLM001"),
        ("require-graphs", GRAPHS, ("m",), None),
        ("require-eager", GRAPHS, ("m",), "VLM002"),
        ("require-eager", EAGER, ("m", "--enforce-eager"), None),
        ("require-graphs", None, ("m", "--enforce-eager"), "VLM001"),
        ("report", EAGER, ("m", "--enforce-eager"), None),
    ],
)
def test_a_required_mode(mode: str, written: Any, args: tuple[str, ...], code: str | None) -> None:
    found = judged(make.pod(CHAT, make.container(args)), written=written, policy=policy(mode))
    judgement = found.of("required-modes")
    assert [each.code.id for each in judgement.findings] == ([code] if code else [])
    assert judgement.verdict == (
        Verdict.FAIL if code else Verdict.NOT_APPLICABLE if mode == "report" else Verdict.PASS
    )


def test_the_strict_policy_is_the_checklists_reading() -> None:
    found = judged(make.pod(), policy=BUILT_IN["strict"])
    assert found.one("VLM002").weight == Severity.ERROR
    assert "VLM003" not in found.codes


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        (VllmRequirement(mode="require-eager", namespace="serv*"), True),
        (VllmRequirement(mode="require-eager", namespace="batch"), False),
        (VllmRequirement(mode="require-eager", workload="Deployment chat"), True),
        (VllmRequirement(mode="require-eager", workload="cha?"), True),
        (VllmRequirement(mode="require-eager", workload="other"), False),
        (VllmRequirement(mode="require-eager", labels={"app": "chat"}), True),
        (VllmRequirement(mode="require-eager", labels={"app": "chat", "tier": "*"}), False),
    ],
)
def test_requirements_by_namespace_workload_and_label(requirement: VllmRequirement, matches: bool) -> None:
    found = judged(make.pod(), policy=policy("report", requirement))
    assert ("VLM002" in found.codes) is matches


def test_the_annotation_goes_before_the_policy() -> None:
    annotated = make.pod(annotations={"gpuctl.dev/vllm-mode": "require-graphs"})
    assert "VLM002" not in judged(annotated, policy=BUILT_IN["strict"]).codes
    reported = make.pod(annotations={"gpuctl.dev/vllm-mode": "report"})
    assert "VLM002" not in judged(reported, policy=BUILT_IN["strict"]).codes


def test_an_annotation_that_says_nothing_known() -> None:
    found = judged(make.pod(annotations={"gpuctl.dev/vllm-mode": "graphs"}))
    assert found.one("VLM007").weight == Severity.WARNING


def test_deliberate_eager_is_information() -> None:
    found = judged(make.pod(CHAT, make.container(["m", "--enforce-eager"])), written=EAGER)
    assert found.codes == ["VLM005"]
    assert "--enforce-eager" in found.one("VLM005").message


@pytest.mark.parametrize(
    "asked",
    [
        {"args": ("m", "--enforce-eager")},
        {"args": ("m", "-cc.cudagraph_mode=none")},
        {"args": ("m", "$(FLAGS)"), "env": {"FLAGS": "--enforce-eager"}},
        {"args": (), "env": {"SM_VLLM_ENFORCE_EAGER": "true"}},
    ],
)
def test_eager_that_somebody_asked_for_is_no_accident(asked: dict[str, Any]) -> None:
    assert "VLM004" not in judged(make.pod(CHAT, make.container(**asked)), written=EAGER).codes


def test_eager_that_nobody_asked_for_is_an_accident() -> None:
    found = judged(make.pod(), written=EAGER)
    finding = found.one("VLM004")
    assert finding.weight == Severity.WARNING
    assert "Enforce eager set" in finding.evidence[0].observed


@pytest.mark.parametrize(("args", "env"), [(("m", "-O0"), {}), (("m",), {"TORCH_COMPILE_DISABLE": "1"})])
def test_what_brings_eager_along_is_an_accident_too(args: tuple[str, ...], env: dict[str, str]) -> None:
    found = judged(make.pod(CHAT, make.container(args, env=env)), written=None)
    assert "VLM004" in found.codes
    old = make.container(args, env=env, image="vllm/vllm-openai:v0.9.2")
    assert "VLM004" not in judged(make.pod(CHAT, old), written=None).codes


@pytest.mark.parametrize("asked", ["FULL", "FULL_DECODE_ONLY"])
def test_graphs_of_the_whole_model_need_no_compilation(asked: str) -> None:
    args = ("m", f"-cc.cudagraph_mode={asked}")
    off = {"TORCH_COMPILE_DISABLE": "1"}
    found = judged(make.pod(CHAT, make.container(args, env=off)), written=None)
    assert "VLM004" not in found.codes
    assert found.engine["mode"]["variant"] == asked
    piecewise = make.container(("m", "-cc.cudagraph_mode=PIECEWISE"), env=off)
    assert "VLM004" in judged(make.pod(CHAT, piecewise), written=None).codes


@pytest.mark.parametrize(
    ("image", "verdict"),
    [("mirror/vllm-openai:latest", Verdict.NOT_PROVEN), ("vllm-openai:v0.9.2", Verdict.PASS)],
)
def test_what_compilation_off_means_depends_on_the_version(image: str, verdict: Verdict) -> None:
    container = make.container(image=image, env={"TORCH_COMPILE_DISABLE": "1"})
    assert judged(make.pod(CHAT, container), written=None).of("known-modes").verdict is verdict


def test_an_image_for_processors_is_meant_to_be_eager() -> None:
    container = make.container(image="vllm/vllm-openai-cpu:v0.22.1", gpus={})
    found = judged(make.pod(CHAT, container), written=None)
    assert found.engine["mode"]["graphs"] is False
    assert found.codes == []


def test_a_program_of_its_own_that_says_eager_may_have_asked() -> None:
    container = make.container([], command=["python", "app.py"])
    found = judged(make.pod(CHAT, container), written=EAGER)
    assert found.engine["mode"]["graphs"] is False
    assert found.of("eager-on-purpose").verdict == Verdict.NOT_PROVEN


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [
        (Unknown(Reason.FORBIDDEN, "no"), Verdict.NOT_PROVEN),
        (Unknown(Reason.NOT_ASKED, "no"), Verdict.NOT_PROVEN),
        (Unknown(Reason.TIMEOUT, "slow"), Verdict.UNKNOWN),
        (Unknown(Reason.SERVER_ERROR, "broken"), Verdict.UNKNOWN),
    ],
)
def test_an_engine_nobody_can_read(gap: Unknown, verdict: Verdict) -> None:
    pod = make.pod(CHAT, make.container([], command=["python", "app.py"]))
    found = judged(pod, written={(CHAT, "vllm"): gap})
    assert found.of("known-modes").verdict == verdict
    assert found.of("readable-logs").verdict == verdict
    required = judged(pod, written={(CHAT, "vllm"): gap}, policy=policy("require-graphs"))
    assert required.of("required-modes").verdict == Verdict.UNKNOWN
    assert required.verdict == Verdict.UNKNOWN


def test_a_log_that_may_not_be_read_leaves_the_arguments() -> None:
    found = judged(make.pod(), written={(CHAT, "vllm"): Unknown(Reason.FORBIDDEN, "no")})
    assert found.of("known-modes").verdict == Verdict.PASS
    assert found.of("readable-logs").verdict == Verdict.NOT_PROVEN
    assert found.engine["mode"]["confidence"] == "inferred"


@pytest.mark.parametrize(
    ("pod", "written", "state"),
    [
        (make.pod(phase="Pending"), {}, "not started"),
        (make.pod(ready=False), {}, "starting"),
        (make.pod(ready=False), {(CHAT, "vllm"): make.graphs_log().partition("Capturing")[0]}, "starting"),
        (make.pod(ready=True), {(CHAT, "vllm"): make.graphs_log().partition("Capturing")[0]}, "starting"),
        (make.pod(ready=True), {(CHAT, "vllm"): make.graphs_log()}, "serving"),
        (make.pod(ready=True), {(CHAT, "vllm"): make.ROTATED}, "serving"),
    ],
)
def test_an_engine_that_starts_is_not_judged(pod: Any, written: Any, state: str) -> None:
    found = judged(pod, written=written, policy=policy("require-eager"))
    assert found.engine["state"] == state
    judgement = found.of("required-modes")
    assert (judgement.verdict == Verdict.FAIL) is (state == "serving")


def test_the_log_before_tells_when_the_newest_does_not() -> None:
    written = {(CHAT, "vllm"): make.ROTATED, (CHAT, "vllm previous"): make.graphs_log()}
    restarted = judged(make.pod(restarts=1), written=written)
    assert restarted.engine["mode"]["confidence"] == "observed"
    never = judged(make.pod(restarts=0), written=written)
    assert never.engine["mode"]["confidence"] == "inferred"


def test_a_deployment_that_was_changed_since() -> None:
    changed = make.deployment("chat", make.container(["m", "--enforce-eager"]))
    assert judged(make.pod(), changed).one("VLM006").weight == Severity.INFO
    same = make.deployment("chat", make.container(["m", "--max-num-seqs", "8"]))
    assert "VLM006" not in judged(make.pod(), same).codes


def test_a_change_that_hides_the_next_mode_is_not_proven() -> None:
    hidden = make.container(command=["/app/start.sh"])
    found = judged(make.pod(), make.deployment("chat", hidden))
    assert found.of("same-after-restart").verdict is Verdict.NOT_PROVEN
    mounts = [{"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]
    same = make.container(command=["/app/start.sh"], volumeMounts=mounts)
    admitted = judged(make.pod(CHAT, same), make.deployment("chat", hidden))
    assert admitted.of("same-after-restart").verdict is Verdict.PASS


@pytest.mark.parametrize(("tag", "verdict"), [("latest", Verdict.NOT_PROVEN), ("v0.9.2", Verdict.PASS)])
def test_a_change_whose_meaning_depends_on_the_version_is_not_proven(tag: str, verdict: Verdict) -> None:
    image = f"mirror/vllm-openai:{tag}"
    changed = make.deployment("chat", make.container(image=image, env={"TORCH_COMPILE_DISABLE": "1"}))
    found = judged(make.pod(CHAT, make.container(image=image)), changed, written={})
    assert found.of("same-after-restart").verdict is verdict


def test_several_engines_of_a_pod_are_told_apart() -> None:
    pod = make.pod(CHAT, make.container(name="a"), make.container(["m", "--enforce-eager"], name="b"))
    written = {(CHAT, "a"): make.graphs_log(), (CHAT, "b"): make.eager_log()}
    found = judged(pod, written=written, policy=policy("require-graphs"))
    assert [engine["container"] for engine in found.engines()] == ["a", "b"]
    assert "container b" in found.one("VLM001").message


def test_the_strict_line_counts() -> None:
    other = make.pod("chat-7c9d5b8f4-bbbbb")
    written = {(CHAT, "vllm"): make.graphs_log(), ("chat-7c9d5b8f4-bbbbb", "vllm"): make.graphs_log()}
    messages = {
        each.message
        for each in judged(make.pod(), other, written=written).findings
        if each.code.id == "VLM003"
    }
    assert messages == {"strict: would fail, 2 engines run graphs"}


def test_the_strict_line_counts_no_engine_that_can_not_be_read_for_an_eager_one() -> None:
    assert judged(make.pod(), written=EAGER).of("strict-reading").verdict == Verdict.PASS
    unreadable = {**make.pod("chat-7c9d5b8f4-bbbbb"), "spec": {"containers": 7}}
    assert judged(make.pod(), unreadable, written=EAGER).of("strict-reading").verdict == Verdict.UNKNOWN


def test_findings_bear_the_same_fingerprint_whatever_shows_them() -> None:
    eager = make.pod(CHAT, make.container(["m", "--enforce-eager"]))
    live = judged(eager, written=EAGER, policy=policy("require-graphs")).one("VLM001")
    later = judged(eager, written=None, policy=policy("require-graphs")).one("VLM001")
    assert live.fingerprint == later.fingerprint


def config_map(text: str) -> dict[str, Any]:
    metadata = {"name": "chat-config", "namespace": "serving"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": text}}


def configured_by_file(path: str = "/etc/vllm/config.yaml") -> dict[str, Any]:
    mounts = [{"name": "config", "mountPath": "/etc/vllm"}]
    container = make.container(["m", "--config", path], volumeMounts=mounts)
    return make.pod(CHAT, container, volumes=[{"name": "config", "configMap": {"name": "chat-config"}}])


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("enforce-eager: true\n", "/etc/vllm/config.yaml: enforce-eager"),
        ("enforce_eager: true\ngpu-memory-utilization: 0.8\n", "/etc/vllm/config.yaml: enforce-eager"),
        ("gpu-memory-utilization: 0.8\n", None),
        ("", None),
    ],
)
def test_a_file_of_arguments_is_read(text: str, asked: str | None) -> None:
    found = judged(configured_by_file(), config_map(text), written=None)
    assert found.engine.get("askedForEager") == asked
    assert found.engine["mode"]["graphs"] is (asked is None)


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([configured_by_file()], "can't be read"),
        ([configured_by_file("/other/config.yaml"), config_map("")], "can't be read"),
        ([configured_by_file(), config_map("a: [")], "does not parse"),
    ],
)
def test_a_file_of_arguments_that_can_not_be_read_hides_the_mode(items: list[Any], why: str) -> None:
    found = judged(*items, written=None)
    assert found.of("known-modes").verdict == Verdict.NOT_PROVEN
    assert why in found.engine["modeUnknown"]
