"""Engines that are asked themselves: what their answers add, and that no answer is no verdict."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.audit.judge import Verdict
from gpuctl.facts.state import Reason, Unknown
from tests.builders import vllm as make
from tests.checks.judging import CHAT
from tests.checks.judging import judged_engines as judged
from tests.vllm.test_answers import V1_METRICS, info

FORBIDDEN = Unknown(Reason.FORBIDDEN, "the permission to get pods/proxy in namespace serving is missing")
HUNG = Unknown(Reason.TIMEOUT, "not finished within 20 s")
ROTATED = {(CHAT, "vllm"): make.ROTATED}
SERVE = "/usr/bin/python3\0/usr/local/bin/vllm\0serve\0acme/chat-7b\0"


def answers(**pages: Any) -> dict[tuple[str, str], Any]:
    whole = {"version": '{"version": "0.21.0"}', "metrics": V1_METRICS, **pages}
    return {(CHAT, f"/{name}"): text for name, text in whole.items() if text is not None}


def test_nobody_is_asked_unless_the_person_says_so() -> None:
    found = judged(make.pod())
    assert found.of("answering-engines").verdict is Verdict.NOT_APPLICABLE
    assert "--vllm-http" in found.of("answering-engines").reason
    assert "--vllm-exec" in found.of("readable-command-lines").reason


def test_metrics_tell_how_busy_an_engine_is_now() -> None:
    found = judged(make.pod(), written=ROTATED, answered=answers())
    assert found.of("answering-engines").verdict is Verdict.PASS
    assert found.engine["load"] == {
        "running": 3, "waiting": 12, "kvUsagePercent": 99.1, "preemptions": 7, "source": "/metrics"
    }  # fmt: skip
    assert found.engine["kvTokens"] == 14022 * 16
    assert found.engine["utilization"] == 0.85


def test_without_them_the_log_tells() -> None:
    assert judged(make.pod(), written=ROTATED).engine["load"]["source"] == "log"


def test_the_version_that_an_engine_says_goes_before_its_images_tag() -> None:
    assert judged(make.pod(), written=ROTATED, answered=answers()).engine["version"] == "0.21.0"
    assert judged(make.pod(), answered=answers()).engine["version"] == "0.22.1", "the log's own word"


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("0.1.dev15312+g690e127b1", Verdict.PASS), ("not one", Verdict.UNKNOWN)],
)
def test_an_engine_without_a_release_answers_all_the_same(version: str, verdict: Verdict) -> None:
    found = judged(make.pod(), answered=answers(version=f'{{"version": "{version}"}}'))
    assert found.of("answering-engines").verdict is verdict
    assert found.engine["version"] == "0.22.1", "the log tells"


def test_server_info_configures_the_mode_where_the_log_does_not_tell() -> None:
    rotated = judged(make.pod(), written=ROTATED, answered=answers(server_info=info(eager=True, graphs=0)))
    assert rotated.engine["mode"]["confidence"] == "configured"
    assert rotated.engine["mode"]["graphs"] is False
    told = judged(make.pod(), answered=answers(server_info=info()))
    assert told.engine["mode"]["confidence"] == "observed"


def test_development_endpoints_are_a_finding() -> None:
    on = judged(make.pod(), answered=answers(server_info=info()))
    off = judged(make.pod(), answered=answers())
    assert "VLM052" in on.codes
    assert "VLM052" not in off.codes
    assert off.of("answering-engines").verdict is Verdict.PASS, "no /server_info is the normal case"


@pytest.mark.parametrize(("value", "found"), [("1", True), ("0", False), (None, False)])
def test_development_endpoints_by_the_pods_environment(value: str | None, found: bool) -> None:
    env = {} if value is None else {"VLLM_SERVER_DEV_MODE": value}
    pod = make.pod(CHAT, make.container(env=env))
    assert ("VLM052" in judged(pod).codes) is found


def test_a_hidden_switch_of_development_endpoints_is_not_proven() -> None:
    container = make.container()
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    container["env"] = [{"name": "VLLM_SERVER_DEV_MODE", "valueFrom": secret}]
    assert judged(make.pod(CHAT, container)).of("closed-development").verdict is Verdict.NOT_PROVEN


@pytest.mark.parametrize(("gap", "verdict"), [(FORBIDDEN, Verdict.NOT_PROVEN), (HUNG, Verdict.UNKNOWN)])
def test_an_engine_that_can_not_be_asked(gap: Unknown, verdict: Verdict) -> None:
    found = judged(make.pod(), answered=answers(version=gap, metrics=gap, server_info=gap))
    assert found.of("answering-engines").verdict is verdict
    assert gap.message in found.of("answering-engines").reason
    assert found.of("known-modes").verdict is Verdict.PASS, "its log tells all the same"


def test_a_port_where_vllm_does_not_answer() -> None:
    found = judged(make.pod(), answered=answers(version=None, metrics=None))
    assert found.of("answering-engines").verdict is Verdict.UNKNOWN
    other = judged(make.pod(), answered=answers(version="<html>", metrics=None))
    assert other.of("answering-engines").verdict is Verdict.UNKNOWN


def test_a_headless_engine_has_no_api() -> None:
    pod = make.pod(CHAT, make.container(("acme/chat-7b", "--headless", "-dp", "2")))
    found = judged(pod, answered=answers(version=HUNG, metrics=HUNG), ran={(CHAT, "vllm"): SERVE})
    assert found.of("answering-engines").verdict is Verdict.NOT_APPLICABLE
    assert found.of("readable-command-lines").verdict is Verdict.PASS


def test_an_engine_that_starts_is_not_asked_to_answer() -> None:
    found = judged(make.pod(ready=False), written={}, answered=answers(version=HUNG, metrics=HUNG))
    assert found.of("answering-engines").verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("fields", "annotations", "port"),
    [
        ({}, {}, 8000),
        ({"args": ["m", "--port", "8011"]}, {}, 8011),
        ({"args": ["m", "--port=8011"], "ports": [{"containerPort": 9000}]}, {}, 8011),
        ({"ports": [{"containerPort": 9000}]}, {}, 9000),
        ({"ports": [{"containerPort": 9100, "name": "nixl"}, {"containerPort": 9000, "name": "http1"}]}, {},
         9000),
        ({"ports": [{"containerPort": 9000}, {"containerPort": 9100}]}, {"prometheus.io/port": "9100"}, 9100),
        ({}, {"prometheus.kserve.io/port": "8085"}, 8085),
        ({"args": ["m", "--port", "$(PORT)"]}, {}, 8000),
        ({"args": ["m", "--port", "99999999999"]}, {}, 8000),
        ({"image": "kserve/huggingfaceserver:v0.15-gpu", "args": ["--backend=vllm"],
          "command": ["python3", "-m", "huggingfaceserver"]}, {}, 8080),
    ],
)  # fmt: skip
def test_where_an_engine_answers(fields: dict[str, Any], annotations: dict[str, str], port: int) -> None:
    from gpuctl.facts.gather import gather
    from gpuctl.vllm.facts import pages_of_engines
    from tests.memory import MemoryReader

    pod = make.pod(CHAT, make.container(**fields), annotations=annotations)
    pages = gather([pages_of_engines], MemoryReader([pod]), {})[pages_of_engines]
    assert {page.port for page in pages} == {port}
    assert [page.path.partition("?")[0] for page in pages] == ["/version", "/metrics", "/server_info"]


def test_tls_is_spoken_where_its_flags_say_so() -> None:
    from gpuctl.facts.gather import gather
    from gpuctl.vllm.facts import pages_of_engines
    from tests.memory import MemoryReader

    pod = make.pod(
        CHAT, make.container(["m", "--ssl-certfile", "/tls/tls.crt", "--ssl-keyfile", "/tls/tls.key"])
    )
    pages = gather([pages_of_engines], MemoryReader([pod]), {})[pages_of_engines]
    assert all(page.https for page in pages)


# The command line


def script(**more: Any) -> dict[str, Any]:
    """An engine whose spec shows nothing: it starts by a script of its image."""
    return make.container(args=(), command=["/app/run.sh"], **more)


def test_a_command_line_shows_what_a_script_hides() -> None:
    pod = make.pod(CHAT, script())
    hidden = judged(pod, written=ROTATED)
    assert hidden.of("known-modes").verdict is Verdict.NOT_PROVEN
    shown = judged(pod, written=ROTATED, ran={(CHAT, "vllm"): f"{SERVE}--enforce-eager\0"})
    assert shown.of("known-modes").verdict is Verdict.PASS
    assert shown.engine["mode"]["graphs"] is False
    assert shown.engine["mode"]["confidence"] == "inferred"
    assert "command line of its process" in shown.engine["askedForEager"]
    assert "VLM004" not in shown.codes
    graphs = judged(pod, written=ROTATED, ran={(CHAT, "vllm"): SERVE})
    assert graphs.engine["mode"]["graphs"] is True


def test_a_process_that_runs_otherwise_than_its_pod_says() -> None:
    spec = make.pod(CHAT, make.container(("acme/chat-7b",)))
    eager = judged(spec, written=ROTATED, ran={(CHAT, "vllm"): f"{SERVE}--enforce-eager\0"})
    message = eager.one("VLM008").message
    assert "eager by its process's command line" in message
    assert "by its pod's spec" in message
    assert "VLM008" not in judged(spec, written=ROTATED, ran={(CHAT, "vllm"): SERVE}).codes


def test_sizes_that_differ_are_said() -> None:
    spec = make.pod(CHAT, make.container(("acme/chat-7b", "--max-model-len", "8192")))
    same, other = f"{SERVE}--max-model-len\x008192\0", f"{SERVE}--max-model-len\x004096\0"
    assert "VLM008" not in judged(spec, ran={(CHAT, "vllm"): same}).codes
    assert "--max-model-len 4096" in judged(spec, ran={(CHAT, "vllm"): other}).one("VLM008").message


def test_a_log_that_shows_graphs_where_the_pod_asks_for_eager() -> None:
    pod = make.pod(CHAT, make.container(("acme/chat-7b", "--enforce-eager")))
    assert "by its log" in judged(pod).one("VLM008").message
    assert "VLM008" not in judged(pod, written={(CHAT, "vllm"): make.eager_log()}).codes


def test_a_fall_back_is_a_finding_of_its_own() -> None:
    found = judged(
        make.pod(), written={(CHAT, "vllm"): make.eager_log().replace("'enforce_eager': True", "'x': 1")}
    )
    assert "VLM004" in found.codes
    assert "VLM008" not in found.codes


@pytest.mark.parametrize(
    ("text", "verdict", "why"),
    [
        ("/bin/bash\0-c\0run\0", Verdict.NOT_PROVEN, "/bin/bash"),
        (Unknown(Reason.FORBIDDEN, "no pods/exec"), Verdict.NOT_PROVEN, "no pods/exec"),
        (Unknown(Reason.SERVER_ERROR, "exec: cat: not found"), Verdict.UNKNOWN, "not found"),
        (SERVE, Verdict.PASS, ""),
    ],
)
def test_a_command_line_that_can_not_be_read(text: str | Unknown, verdict: Verdict, why: str) -> None:
    found = judged(make.pod(), ran={(CHAT, "vllm"): text}).of("readable-command-lines")
    assert found.verdict is verdict
    assert why in found.reason


def test_no_word_of_a_command_line_reaches_the_report() -> None:
    import msgspec

    secret = "sk-0123456789abcdefghijkl"
    found = judged(make.pod(), ran={(CHAT, "vllm"): f"{SERVE}--api-key\0{secret}\0--enforce-eager\0"})
    shown = str(found.engine) + str([msgspec.to_builtins(each.evidence) for each in found.findings])
    assert secret not in shown
