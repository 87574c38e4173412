"""kwok's stages, and what single nodes and pods can be told by annotations beside them.

node  gpuctl-bed/kubelet: stopped   its Ready condition stays as it was written, until this is gone
pod   gpuctl-bed/sigterm: ignored   ends when its grace period does, not at once
pod   gpuctl-bed/sigterm: hangs     never ends, until this is gone
pod   gpuctl-bed/job: runs          of a Job, and yet not done at once, as Jobs are on simulated nodes
"""

from pathlib import Path
from typing import Any

import yaml

KUBELET = "gpuctl-bed/kubelet"
STOPPED = "stopped"
SIGTERM = "gpuctl-bed/sigterm"
IGNORED = "ignored"
HANGS = "hangs"
HEEDED = "heeded"
JOB = "gpuctl-bed/job"
RUNS = "runs"
_STAGES = (
    ("node/fast/node-initialize.yaml", KUBELET, (STOPPED,)),
    ("node/heartbeat-with-lease/node-heartbeat-with-lease.yaml", KUBELET, (STOPPED,)),
    ("pod/fast/pod-ready.yaml", "", ()),
    ("pod/fast/pod-complete.yaml", JOB, (RUNS,)),
    ("pod/fast/pod-delete.yaml", SIGTERM, (IGNORED, HANGS, HEEDED)),
)


def write(source: Path, folder: Path) -> list[Path]:
    """The files for kwok's --config, in this folder, made from those of its module."""
    folder.mkdir(exist_ok=True)
    stages = [_excepting(_read(source / name), key, values) for name, key, values in _STAGES]
    stages.append(_at_the_end_of_grace(_read(source / _STAGES[-1][0])))
    files = [folder / f"{stage['metadata']['name']}.yaml" for stage in stages]
    for file, stage in zip(files, stages, strict=True):
        file.write_text(yaml.safe_dump(stage))
    return files


def _read(file: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(file.read_text()))


def _excepting(stage: dict[str, Any], key: str, values: tuple[str, ...]) -> dict[str, Any]:
    if key:
        stage["spec"]["selector"]["matchExpressions"].append(_annotation(key, "NotIn", values))
    return stage


def _at_the_end_of_grace(stage: dict[str, Any]) -> dict[str, Any]:
    """The stage by which the kubelet kills at last: a pod's deletionTimestamp is the end of its grace."""
    stage["metadata"]["name"] = "pod-kill"
    stage["spec"]["selector"]["matchExpressions"].append(_annotation(SIGTERM, "In", (IGNORED,)))
    stage["spec"]["delay"] = {"durationFrom": {"expressionFrom": ".metadata.deletionTimestamp"}}
    return stage


def _annotation(key: str, operator: str, values: tuple[str, ...]) -> dict[str, Any]:
    return {"key": f'.metadata.annotations["{key}"]', "operator": operator, "values": list(values)}
