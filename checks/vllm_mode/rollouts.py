"""A new version of an engine can come up beside, or instead of, the old one."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.vllm_mode import codes
from gpuctl.checks.vllm_mode.words import finding, get
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, NotKnown
from gpuctl.vllm.engine import Engine
from gpuctl.vllm.facts import DEPLOYMENTS, NODES, PODS, engines_of_vllm
from gpuctl.vllm.objects import EngineDeployment, EngineNode, EnginePod
from gpuctl.vllm.room import asked, free, holds, stops_first, usable

REVISION = "pod-template-hash"


@every(
    engines_of_vllm,
    "the next rollout of every engine finds a GPU",
    given(DEPLOYMENTS, NODES, PODS),
    Strength.PROOF,
)
def possible_rollouts(
    engine: Engine,
    deployments: Each[Ref, EngineDeployment],
    nodes: Each[Ref, EngineNode],
    pods: Each[Ref, EnginePod],
) -> Iterator[Finding]:
    deployment = _deployment(engine, deployments)
    if engine.state == "not started":
        yield from _stuck(engine, deployment, pods)
        return
    if stops_first(deployment) or deployment.spec.replicas == 0 or deployment.spec.paused:
        return
    wanted = asked(engine.pod.spec)
    resource = next(iter(wanted), None)
    if resource is None:
        raise NotKnown(Inapplicable("it asks for no GPU by name"))
    if _lower(engine, pods, resource) or any(
        free(node, pods, resource) >= wanted[resource] for node in usable(engine.pod.spec, nodes)
    ):
        return
    yield finding(
        engine,
        codes.ROLLOUT_WOULD_DEADLOCK,
        "could not be replaced: its rollout starts the new pod before it stops the old one, and no node it "
        f"may run on has {wanted[resource]} {resource} free; the new pod would wait for ever",
        (
            Evidence(deployment.ref, ".spec.strategy", _strategy(deployment)),
            Evidence(engine.ref.pod, ".spec.containers", f"{resource}: {wanted[resource]}"),
        ),
        "kubectl get nodes -o custom-columns='NAME:.metadata.name,GPU:.status.allocatable'; "
        f"{get(deployment.ref)}",
        "set strategy.type: Recreate, or maxSurge: 0 with maxUnavailable: 1, before the next change; risk: "
        "the engine is away while the new one starts",
        cause="rollout",
    )


def _deployment(engine: Engine, deployments: Each[Ref, EngineDeployment]) -> EngineDeployment:
    owner = next((each for each in engine.pod.metadata.owner_references if each.controller), None)
    template = engine.pod.metadata.labels.get(REVISION, "")
    if owner is None or owner.kind != "ReplicaSet" or not template:
        raise NotKnown(Inapplicable("its pods are not made by a Deployment"))
    name = owner.name.removesuffix(f"-{template}")
    found = deployments.get(Ref(EngineDeployment.of, name, engine.ref.pod.namespace))
    if found is None:
        raise NotKnown(Inapplicable("its Deployment is gone"))
    return found


def _strategy(deployment: EngineDeployment) -> str:
    update = deployment.spec.strategy.rolling_update
    surge, unavailable = update.max_surge, update.max_unavailable
    shown = (25 if surge is None else surge, 25 if unavailable is None else unavailable)
    default = " (the default)" if surge is None and unavailable is None else ""
    return (
        f"RollingUpdate{default}, maxSurge {shown[0]}, maxUnavailable {shown[1]}, replicas "
        f"{deployment.spec.replicas}: no old pod is stopped first"
    )


def _lower(engine: Engine, pods: Each[Ref, EnginePod], resource: str) -> bool:
    """Whether the new pod could take the place of one that is worth less."""
    mine = engine.pod.spec.priority
    return any(pod.spec.priority < mine and holds(pod) and resource in asked(pod.spec) for pod in pods)


def _stuck(engine: Engine, deployment: EngineDeployment, pods: Each[Ref, EnginePod]) -> Iterator[Finding]:
    """A new pod that waits for the GPU of the old one."""
    why = next(
        (
            each
            for each in engine.pod.status.conditions
            if each.type == "PodScheduled" and each.status == "False"
        ),
        None,
    )
    wanted = asked(engine.pod.spec)
    resource = next((name for name in wanted if why and f"Insufficient {name}" in why.message), None)
    if why is None or resource is None or stops_first(deployment):
        return
    old = [pod for pod in pods if _is_old(pod, engine) and resource in asked(pod.spec)]
    if old:
        yield finding(
            engine,
            codes.ROLLOUT_DEADLOCKED,
            f"waits for {resource}, which {old[0].ref} of the same Deployment holds and keeps until the "
            "new pod is ready",
            (
                Evidence(engine.ref.pod, ".status.conditions", why.message),
                Evidence(old[0].ref, ".status.phase", old[0].status.phase),
            ),
            f"kubectl -n {engine.ref.pod.namespace} rollout status deployment/{deployment.metadata.name} "
            "--timeout=1s",
            f"set strategy.type: Recreate on {deployment.ref}, or free a GPU; risk: the engine is away while "
            "the new one starts",
            cause="stuck",
        )


def _is_old(pod: EnginePod, engine: Engine) -> bool:
    mine, its = engine.pod.metadata, pod.metadata
    owner = {each.name.rpartition("-")[0] for each in its.owner_references if each.kind == "ReplicaSet"}
    same = {each.name.rpartition("-")[0] for each in mine.owner_references if each.kind == "ReplicaSet"}
    return (
        its.namespace == mine.namespace
        and bool(owner & same)
        and its.labels.get(REVISION) != mine.labels.get(REVISION)
        and pod.status.phase == "Running"
    )
