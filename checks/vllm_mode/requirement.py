"""Which mode an engine must run in: its pod's annotation, else the policy's first match, else the policy."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from gpuctl.audit.policy import Policy, VllmRequirement
from gpuctl.vllm.engine import Engine

ANNOTATION: Final = "gpuctl.dev/vllm-mode"
REPORT: Final = "report"
GRAPHS: Final = "require-graphs"
EAGER: Final = "require-eager"
KNOWN: Final = (REPORT, GRAPHS, EAGER)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A mode, and who asks for it."""

    mode: str
    by: str

    @property
    def asks(self) -> bool:
        """Whether it asks for anything."""
        return self.mode != REPORT


def requirement(engine: Engine, policy: Policy) -> Requirement:
    """What is required of an engine. An annotation that says nothing known asks for nothing."""
    said = annotated(engine)
    if said in KNOWN:
        return Requirement(said, f"annotation {ANNOTATION}")
    section = policy.checks.vllm_mode
    for number, each in enumerate(section.requirements):
        if _matches(each, engine):
            return Requirement(each.mode, f"policy checks.vllm-mode.requirements[{number}]")
    return Requirement(section.mode, "policy checks.vllm-mode.mode")


def annotated(engine: Engine) -> str:
    """What the pod's annotation says, empty without one."""
    return engine.pod.metadata.annotations.get(ANNOTATION, "")


def _matches(each: VllmRequirement, engine: Engine) -> bool:
    labels = engine.pod.metadata.labels
    name = engine.workload.partition(" ")[2]
    return (
        fnmatchcase(engine.ref.pod.namespace, each.namespace)
        and (fnmatchcase(engine.workload, each.workload) or fnmatchcase(name, each.workload))
        and all(
            fnmatchcase(labels.get(key, ""), value) and key in labels for key, value in each.labels.items()
        )
    )
