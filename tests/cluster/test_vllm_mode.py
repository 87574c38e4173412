"""Engines on a real kubelet: pods that print what vLLM prints, read live; and 500 on simulated nodes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.builders import vllm as make

from .bed import Bed
from .bed.images import BUSYBOX
from .bed.wait import crowding
from .gpuctl import PROGRAM, check, run

SECONDS_TO_ROTATE = 60

# The shell takes this function for the program: the pod starts as an engine does, and prints the same.
SERVES = "vllm() { cat /start/log; exec sleep 1000000; }; vllm serve acme/chat-7b"


def engine(
    name: str, log: str, script: str = SERVES, arguments: str = "", **pod: Any
) -> list[dict[str, Any]]:
    """A ConfigMap with a log, and a pod that prints it."""
    mounts = [{"name": "start", "mountPath": "/start"}, {"name": "state", "mountPath": "/state"}]
    container = {
        "name": "vllm",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", f"{script} {arguments}".strip()],
        "volumeMounts": mounts,
        **pod,
    }
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"log": log}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                "volumes": [
                    {"name": "start", "configMap": {"name": name}},
                    {"name": "state", "emptyDir": {}},
                ],
            },
        },
    ]


def apply(bed: Bed, namespace: str, *items: dict[str, Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
    bed.kubectl("-n", namespace, "apply", "--server-side", "-f", "-", input=text)


def ready(bed: Bed, namespace: str, *names: str) -> None:
    bed.kubectl(
        "-n", namespace, "wait", "--for=condition=Ready", *(f"pod/{name}" for name in names), "--timeout=90s"
    )


def engines(bed: Bed, namespace: str, *arguments: str, kubeconfig: Path | None = None) -> Mapping[str, Any]:
    """What `gpuctl vllm` knows of a namespace's engines, by pod."""
    result = run("vllm", "-o", "json", *arguments, kubeconfig=kubeconfig or bed.kubeconfig)
    assert result.returncode == 0, result.stderr
    return {each["pod"]: each for each in json.loads(result.stdout) if each["namespace"] == namespace}


def test_modes_are_read_from_live_logs(bed: Bed, namespace: str) -> None:
    apply(
        bed,
        namespace,
        *engine("graphs", make.graphs_log()),
        *engine("eager", make.eager_log(), arguments="--enforce-eager"),
        *engine("accident", make.eager_log()),
        *engine("old", make.v0_log(utilization=0.95, took=1.0)),
    )
    ready(bed, namespace, "graphs", "eager", "accident", "old")
    found = engines(bed, namespace)
    modes = {name: (each["mode"]["graphs"], each["mode"]["confidence"]) for name, each in found.items()}
    assert modes == {
        "graphs": (True, "observed"),
        "eager": (False, "observed"),
        "accident": (False, "observed"),
        "old": (True, "observed"),
    }
    assert found["graphs"]["mode"]["at"], "the kubelet tells when a line was written"
    assert found["graphs"]["ranks"][0]["kvGib"] == 4.1
    answer = check("vllm-mode", "-n", namespace, kubeconfig=bed.kubeconfig)
    codes = {(code, name) for code, name in answer.found() if code != "VLM040"}
    assert codes == {("VLM004", "accident"), ("VLM010", "old")}
    whole = run("vllm", f"{namespace}/graphs", kubeconfig=bed.kubeconfig)
    assert "Graph capturing finished in 7 secs, took 0.71 GiB" in whole.stdout


def test_without_logs_the_arguments_tell(bed: Bed, namespace: str) -> None:
    apply(bed, namespace, *engine("eager", make.graphs_log(), arguments="--enforce-eager"))
    ready(bed, namespace, "eager")
    found = engines(bed, namespace, "--logs", "none")
    assert found["eager"]["mode"]["confidence"] == "inferred"
    assert found["eager"]["mode"]["graphs"] is False
    answer = check("vllm-mode", "-n", namespace, "--logs", "none", kubeconfig=bed.kubeconfig)
    assert answer.verdicts()["readable-logs"] == "not-proven"
    assert answer.verdicts()["known-modes"] == "pass"


def test_a_log_that_may_not_be_read_is_a_proof_not_proven(
    bed: Bed, namespace: str, user: Callable[..., Path]
) -> None:
    apply(bed, namespace, *engine("chat", make.graphs_log()))
    ready(bed, namespace, "chat")
    reads = {"apiGroups": ["", "apps"], "verbs": ["get", "list"]}
    kinds = ["pods", "nodes", "services", "configmaps", "deployments"]
    limited = user("no-logs", [{**reads, "resources": kinds}])
    answer = check("vllm-mode", "-n", namespace, kubeconfig=limited)
    assert answer.verdicts()["readable-logs"] == "not-proven"
    assert answer.verdicts()["known-modes"] == "pass"


def test_a_restart_and_the_log_before(bed: Bed, namespace: str) -> None:
    """Fails once with a message, then serves: first failed, then well."""
    error = make.failed_log(
        "ValueError: No available memory for the cache blocks. Try increasing", version="0.22.1"
    )
    script = (
        "vllm() { if [ -f /state/ran ]; then cat /start/log; exec sleep 1000000; fi; "
        "touch /state/ran; cat /start/error; sleep 1; exit 1; }; vllm serve acme/chat-7b"
    )
    items = engine("chat", make.graphs_log(), script)
    items[0]["data"]["error"] = error
    apply(bed, namespace, *items)

    def restarts() -> bool:
        path = "jsonpath={.status.containerStatuses[0].restartCount}"
        return bed.kubectl("-n", namespace, "get", "pod", "chat", "-o", path) == "1"

    bed.wait(restarts, 90, "a restart")
    ready(bed, namespace, "chat")
    found = engines(bed, namespace)["chat"]
    assert found["state"] == "serving"
    assert found["mode"]["confidence"] == "observed"
    assert "failure" not in found, "the running process is well"


def test_a_crash_loop_is_called_by_its_cause(bed: Bed, namespace: str) -> None:
    error = make.failed_log(
        "ValueError: Free memory on device cuda:0 (12.18/23.56 GiB) on startup is less than desired GPU "
        "memory utilization (0.92, 21.67 GiB). Decrease GPU memory utilization"
    )
    script = "vllm() { cat /start/log; sleep 1; exit 1; }; vllm serve acme/chat-7b"
    apply(bed, namespace, *engine("chat", error, script))

    def failing() -> bool:
        path = "jsonpath={.status.containerStatuses[0].state.waiting.reason}"
        return bed.kubectl("-n", namespace, "get", "pod", "chat", "-o", path) == "CrashLoopBackOff"

    bed.wait(failing, 90, "a crash loop")
    answer = check("vllm-mode", "-n", namespace, kubeconfig=bed.kubeconfig)
    assert ("VLM020", "chat") in answer.found()


def test_rotation_takes_the_evidence_away(bed: Bed, namespace: str, tmp_path: Path) -> None:
    """The kubelet keeps the newest file: the start is gone, and that is no fault and not incomplete."""
    request = 'INFO:     10.0.3.7:41822 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    script = (
        "vllm() { cat /start/log; sleep 2; while [ ! -f /state/stop ]; do "
        f"yes '(APIServer pid=1) {request}' | head -n 20000; cat /start/stats; sleep 1; done; exec sleep "
        "1000000; }; "
        "vllm serve acme/chat-7b"
    )
    items = engine("chat", make.graphs_log(), script)
    items[0]["data"]["stats"] = make.stats_line(55.0, 7, 2) + "\n"
    apply(bed, namespace, *items)
    ready(bed, namespace, "chat")

    def rotated() -> bool:
        head = bed.kubectl("-n", namespace, "logs", "chat", "--limit-bytes=200", check=False)
        return bool(head) and "version" not in head

    try:
        bed.wait(rotated, SECONDS_TO_ROTATE * 2, "the kubelet to rotate the log")
    finally:
        bed.kubectl("-n", namespace, "exec", "chat", "--", "touch", "/state/stop", check=False)
    found = engines(bed, namespace)["chat"]
    assert (found["mode"]["confidence"], found["mode"]["graphs"]) == ("inferred", True)
    answer = check(
        "vllm-mode", "-n", namespace, "--save", str(tmp_path / "snapshot"), kubeconfig=bed.kubeconfig
    )
    assert answer.verdicts()["known-modes"] == "pass"
    assert answer.code == 0
    stored = list((tmp_path / "snapshot").rglob("chat/*.log"))
    assert stored
    assert all("POST" not in file.read_text() for file in stored), "requests are not stored"


def test_a_snapshot_tells_the_same_and_holds_no_keys(bed: Bed, namespace: str, tmp_path: Path) -> None:
    secret = "sk-this-must-not-be-stored-0123456789"
    text = (
        make.record(f"non-default args: {{'model': 'm', 'api_key': ['{secret}']}}", "utils.py")
        + "\n"
        + make.graphs_log()
    )
    apply(bed, namespace, *engine("chat", text, arguments=f"--api-key {secret}"))
    ready(bed, namespace, "chat")
    where = tmp_path / "snapshot.tar.gz"
    live = check("vllm-mode", "-n", namespace, "--save", str(where), kubeconfig=bed.kubeconfig)
    folder = tmp_path / "open"
    folder.mkdir()
    subprocess.run(["tar", "-xzf", str(where), "-C", str(folder)], check=True)
    assert all(secret.encode() not in file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert secret not in json.dumps(live.report)
    again = check("vllm-mode", "--from", str(where))
    assert again.fingerprints() == live.fingerprints()
    assert again.verdicts() == live.verdicts()


def test_a_memory_baseline(bed: Bed, namespace: str, tmp_path: Path) -> None:
    apply(bed, namespace, *engine("chat", make.graphs_log()))
    ready(bed, namespace, "chat")
    file = tmp_path / "baseline.json"
    engines(bed, namespace, "--save-memory-baseline", str(file))
    bed.kubectl("-n", namespace, "delete", "pod", "chat", "--force", "--grace-period=0")
    apply(bed, namespace, *engine("chat", make.graphs_log(kv=2.0)))
    ready(bed, namespace, "chat")
    result = run("vllm", f"{namespace}/chat", "--memory-baseline", str(file), kubeconfig=bed.kubeconfig)
    assert "KV cache 4.10 to 2.00 GiB" in result.stdout


# Engines that are asked themselves

ANSWERS = "cat /start/log; httpd -f -p 8000 -h /start"
HANGS = "cat /start/log; while true; do sleep 1000 | nc -l -p 8000 >/state/heard; done"
SILENT = "cat /start/log; sleep 1000000"
METRICS = """\
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 12.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.991
vllm:num_preemptions_total{engine="0",model_name="m"} 7.0
"""


def asked(name: str, does: str, extra: str = "") -> list[dict[str, Any]]:
    """An engine whose process is one of vLLM's by its command line; flags come from where nobody reads."""
    items = engine(name, make.ROTATED)
    items[0]["data"] |= {
        "vllm": f"#!/bin/sh\n{does}\n",
        "version": json.dumps({"version": "0.21.0"}),
        "metrics": METRICS,
        "extra": extra,
    }
    items[1]["spec"]["volumes"][0]["configMap"]["defaultMode"] = 0o755
    (container,) = items[1]["spec"]["containers"]
    hidden = {"configMapKeyRef": {"name": name, "key": "extra"}}
    container["env"] = [{"name": "EXTRA", "valueFrom": hidden}]
    container["command"] = [
        "/bin/sh",
        "-c",
        "exec /start/vllm serve acme/chat-7b --max-model-len 8192 $EXTRA",
    ]
    return items


def test_engines_are_asked_only_where_a_person_says_so(bed: Bed, namespace: str) -> None:
    apply(bed, namespace, *asked("chat", ANSWERS, "--enforce-eager"))
    ready(bed, namespace, "chat")
    begin = datetime.now(UTC)
    silent = engines(bed, namespace)["chat"]
    assert "$EXTRA is not known" in silent["modeUnknown"]
    told = engines(bed, namespace, "--vllm-http", "--vllm-exec")["chat"]
    assert told["version"] == "0.21.0"
    assert told["load"] == {
        "running": 3, "waiting": 12, "kvUsagePercent": 99.1, "preemptions": 7, "source": "/metrics"
    }  # fmt: skip
    assert (told["mode"]["graphs"], told["mode"]["confidence"]) == (False, "inferred")
    assert "on the command line of its process" in told["askedForEager"]
    uris = [event.uri for event in bed.audit.requests(since=begin) if "/proxy/" in event.uri]
    assert {uri.rpartition("/proxy")[2].partition("?")[0] for uri in uris if f"/{namespace}/" in uri} == {
        "/version", "/metrics", "/server_info"
    }  # fmt: skip


def test_an_engine_that_hangs_costs_its_own_answers(bed: Bed, namespace: str, tmp_path: Path) -> None:
    apply(bed, namespace, *asked("chat", ANSWERS), *asked("hangs", HANGS), *asked("deaf", SILENT))
    ready(bed, namespace, "chat", "hangs", "deaf")
    where = tmp_path / "snapshot"
    started = time.monotonic()
    live = check(
        "vllm-mode",
        "-n",
        namespace,
        "--vllm-http",
        "--vllm-exec",
        "--save",
        str(where),
        kubeconfig=bed.kubeconfig,
    )
    # Twenty seconds for the one that hangs, and time for a busy machine; less than the run has at most.
    assert time.monotonic() - started < 90
    assert live.verdicts()["answering-engines"] == "unknown"
    assert live.verdicts()["readable-command-lines"] == "pass"
    assert live.verdicts()["known-modes"] == "pass"
    (found,) = live.report["checks"]
    (asking,) = [each for each in found["assertions"] if each["id"] == "answering-engines"]
    gaps = {each["object"]: each["reason"] for each in asking["unknown"]}
    assert gaps == {
        f"Pod {namespace}/hangs container vllm": "timeout",
        f"Pod {namespace}/deaf container vllm": "server-error",
    }
    again = check("vllm-mode", "--from", str(where))
    assert again.verdicts() == live.verdicts()
    assert again.fingerprints() == live.fingerprints()


def test_the_permission_to_ask_is_named(bed: Bed, namespace: str, user: Callable[..., Path]) -> None:
    apply(bed, namespace, *asked("chat", ANSWERS))
    ready(bed, namespace, "chat")
    rules = [
        {"apiGroups": ["", "apps"], "verbs": ["get", "list"],
         "resources": ["pods", "pods/log", "nodes", "services", "configmaps", "deployments"]},
    ]  # fmt: skip
    limited = user("no-proxy", rules)
    answer = check("vllm-mode", "-n", namespace, "--vllm-http", "--vllm-exec", kubeconfig=limited)
    assert answer.verdicts()["answering-engines"] == "not-proven"
    assert answer.verdicts()["readable-command-lines"] == "not-proven"
    text = json.dumps(answer.report)
    assert f"get pods/proxy in namespace {namespace}" in text
    assert f"create pods/exec in namespace {namespace}" in text


# 500 engines

MANY, NODES = 500, 20


@pytest.fixture
def many(bed: Bed, namespace: str, tmp_path: Path) -> Iterator[str]:
    """Engines on simulated nodes, all with one log of a megabyte that a busy engine would have."""
    log = tmp_path / "engine.log"
    request = 'INFO:     10.0.3.7:41822 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    text = make.graphs_log() + (request * 100 + make.stats_line() + "\n") * 120
    at = "2026-11-30T10:00:00.000000000Z"
    log.write_text("".join(f"{at} stdout F {line}\n" for line in text.split("\n")))
    os.chmod(tmp_path, 0o755)
    nodes = [f"sim-{namespace}-{number}" for number in range(NODES)]

    def running() -> bool:
        listed = bed.kubectl(
            "-n", namespace, "get", "pods", "--field-selector=status.phase=Running", "-o", "name"
        )
        return len(listed.split()) == MANY

    try:
        apply(bed, namespace, *map(_node, nodes))
        apply(bed, namespace, _logs(namespace, log), *(_pod(number, namespace) for number in range(MANY)))
        bed.wait(running, 180, f"{MANY} simulated engines")
        yield namespace
    finally:
        bed.kubectl("delete", "clusterlogs", namespace, "--ignore-not-found")
        bed.kubectl("-n", namespace, "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
        bed.kubectl("delete", "nodes", *nodes, "--ignore-not-found", "--wait=false")


def _node(name: str) -> dict[str, Any]:
    capacity = {"nvidia.com/gpu": "32", "cpu": "512", "memory": "4Ti", "pods": "200"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"nvidia.com/gpu.memory": "81559", "kubernetes.io/hostname": name},
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def _pod(number: int, namespace: str) -> dict[str, Any]:
    made = make.pod(
        f"chat-{number}",
        make.container(),
        namespace=namespace,
        labels={},
        node=f"sim-{namespace}-{number % NODES}",
    )
    del made["status"], made["metadata"]["ownerReferences"]
    made["spec"]["tolerations"] = [{"operator": "Exists"}]
    return made


def _logs(namespace: str, file: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterLogs",
        "metadata": {"name": namespace},
        "spec": {
            "selector": {"matchNamespaces": [namespace]},
            "logs": [{"containers": ["vllm"], "logsFile": str(file)}],
        },
    }


@pytest.mark.slow
def test_five_hundred_engines(bed: Bed, many: str) -> None:
    started = time.monotonic()
    report, said, peak = measured(bed, "check", "vllm-mode", "-n", many, "-o", "json")
    taken = time.monotonic() - started
    (found,) = report["checks"]
    modes = [facts["mode"]["confidence"] for each in found["subjects"] for facts in each["facts"]["engines"]]
    assert modes == ["observed"] * MANY
    print(f"{MANY} engines: {taken:.1f} s, {peak} MiB")
    assert taken < 90 * crowding()
    assert peak < 150, f"{peak} MiB"
    assert "reading" in said, "the wait is explained"


def measured(bed: Bed, *arguments: str) -> tuple[dict[str, Any], str, int]:
    """The JSON and the words of a run, and the most memory it had in MiB."""
    environment = {**os.environ, "KUBECONFIG": str(bed.kubeconfig)}
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen([str(PROGRAM), *arguments], env=environment, stdout=out, stderr=said) as program,
    ):
        peak = 0
        while program.poll() is None:
            peak = max(peak, _high_water(program.pid))
            time.sleep(0.1)
        out.seek(0)
        said.seek(0)
        return json.loads(out.read()), said.read(), peak // 1024


def _high_water(pid: int) -> int:
    """In KiB; 0 once the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) if found else 0
