"""The runbook vllm-switch-mode on a real kubelet, whose only GPU the engine holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders import vllm as make

from . import gpuctl
from .bed import Bed
from .bed.images import BUSYBOX
from .test_vllm_mode import apply

GPU = "nvidia.com/gpu"
# What stands for vLLM: it prints the log of the mode that its words ask for, and serves.
ENGINE = """#!/bin/sh
case " $* " in *" --enforce-eager "*) cat /start/eager ;; *) cat /start/graphs ;; esac
exec sleep 1000000
"""


@pytest.fixture
def gpu(bed: Bed, state_namespace: str) -> Iterator[None]:
    bed.gpu_capacity(bed.node, {GPU: 1})
    yield
    bed.gpu_capacity(bed.node, {GPU: 0})


def engine(bed: Bed, namespace: str, *, annotations: dict[str, str] | None = None) -> None:
    container = {
        "name": "vllm",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/start/vllm", "serve"],
        "args": ["acme/chat-7b"],
        "resources": {"limits": {GPU: 1}},
        "volumeMounts": [{"name": "start", "mountPath": "/start"}],
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"kubernetes.io/hostname": bed.node},
        "containers": [container],
        "volumes": [{"name": "start", "configMap": {"name": "start", "defaultMode": 0o755}}],
    }
    apply(
        bed,
        namespace,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "start"},
            "data": {"vllm": ENGINE, "eager": make.eager_log(), "graphs": make.graphs_log()},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "chat", "annotations": annotations or {}},
            "spec": {
                "selector": {"matchLabels": {"app": "chat"}},
                "template": {"metadata": {"labels": {"app": "chat"}}, "spec": spec},
            },
        },
    )
    bed.kubectl("-n", namespace, "rollout", "status", "deployment/chat", "--timeout=90s")


def plan(bed: Bed, namespace: str, file: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    arguments = ("plan", "vllm-switch-mode", f"{namespace}/chat", *flags, "-o", "json", "--out", str(file))
    answer = gpuctl.run(*arguments, kubeconfig=bed.kubeconfig)
    assert answer.stdout, answer.stderr
    return answer.returncode, json.loads(answer.stdout)["targets"][0]


def deployment(bed: Bed, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        bed.kubectl("-n", namespace, "get", "deployment", "chat", "-o", "json")
    )
    return found


def mode(bed: Bed, namespace: str) -> list[bool]:
    result = gpuctl.run("vllm", "-o", "json", kubeconfig=bed.kubeconfig)
    assert result.returncode == 0, result.stderr
    found = [each for each in json.loads(result.stdout) if each["namespace"] == namespace]
    return [each["mode"]["graphs"] for each in found]


def test_the_only_gpu_is_switched_without_a_deadlock(
    bed: Bed, namespace: str, gpu: None, tmp_path: Path
) -> None:
    engine(bed, namespace)
    file = tmp_path / "plan.json"
    code, refused = plan(bed, namespace, file, "--to", "eager")
    assert code == 1
    assert [each["override"] for each in refused["blockers"]] == ["--recreate"]
    code, printed = plan(bed, namespace, file, "--to", "eager", "--recreate", "--patch-only")
    assert code == 0
    assert any("kubectl patch" in line and "--enforce-eager" in line for line in printed["effects"])
    code, found = plan(bed, namespace, file, "--to", "eager", "--recreate")
    assert (code, found["blockers"]) == (0, [])
    assert any(line.startswith("OUTAGE") for line in found["effects"])
    assert mode(bed, namespace) == [True]
    applied = gpuctl.run("apply", str(file), "--yes", kubeconfig=bed.kubeconfig)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert mode(bed, namespace) == [False]
    after = deployment(bed, namespace)
    assert after["spec"]["strategy"]["type"] == "RollingUpdate"
    assert after["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--enforce-eager"


def test_an_engine_that_argo_cd_keeps_is_refused(bed: Bed, namespace: str, gpu: None, tmp_path: Path) -> None:
    engine(bed, namespace, annotations={"argocd.argoproj.io/tracking-id": "chat:apps/Deployment:x/chat"})
    code, found = plan(bed, namespace, tmp_path / "p.json", "--to", "eager", "--recreate")
    assert code == 1
    assert [each["guard"] for each in found["blockers"]] == ["not-owned-elsewhere"]
