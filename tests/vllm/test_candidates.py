"""Pods on which no judgement of engines rests are dropped as they are read; all others stay."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuctl.vllm.engines import CandidatePod
from tests.builders import vllm as make
from tests.checks.judging import judged_engines as judged

SIDECAR = {"name": "istio-proxy", "image": "istio/proxyv2:1.29"}


def plain(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "registry.example.com/team/app:1", **fields}


def asking(name: str) -> dict[str, Any]:
    return plain(resources={"limits": {name: "1"}})


@pytest.mark.parametrize(
    ("pod", "stays"),
    [
        (make.pod("a", make.container()), True),
        (make.pod("a", make.container(gpus={})), True),
        (make.pod("a", plain(command=["vllm", "serve", "m"])), True),
        (make.pod("a", plain(), labels={"engine": "vllm"}), True),
        (make.pod("a", plain(image="nvcr.io/nim/meta/llama:1")), True),  # listed, with the reason
        (make.pod("a", plain(image="rayproject/ray-llm:2.46")), True),
        (make.pod("a", asking("nvidia.com/gpu")), True),  # holds what an engine may wait for
        (make.pod("a", asking("amd.com/gpu"), phase="Succeeded"), True),
        (make.pod("a", plain(resources={"claims": [{"name": "gpu"}]})), True),
        (make.pod("a", plain(), SIDECAR), False),
        (make.pod("a", asking("cpu")), False),
        (make.pod("a", plain(command=["python", "-m", "train"])), False),
    ],
)
def test_who_stays(pod: dict[str, Any], stays: bool) -> None:
    view = msgspec.json.decode(msgspec.json.encode(pod), type=CandidatePod)
    assert view.relevant is stays


def test_without_the_others_nothing_is_judged_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    amounts: Any = {"nvidia.com/gpu": 1}
    old, full = make.pod(), make.node(**amounts)
    others = (make.pod("batch", asking("nvidia.com/gpu")), make.pod("web", plain(), SIDECAR))
    few = judged(old, make.deployment(), full, *others)
    monkeypatch.setattr(CandidatePod, "relevant", True)
    assert judged(old, make.deployment(), full, *others).codes == few.codes
