"""MIG manager and the other pods that serve GPUs run where they are needed, and saw the last change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import kind_of, label, logs, must_be_judged, restart, show
from gpuctl.facts.fact import given
from gpuctl.facts.state import Inapplicable, NotKnown, Reason, Unknown, value
from gpuctl.nvidia.facts import nodes_with_GPUs
from gpuctl.nvidia.node import CONFIG, STATE, Node
from gpuctl.nvidia.objects import ClusterPolicySpec, GpuPod, OperandSet
from gpuctl.nvidia.operands import BY_NAME, DEPLOY, GFD, MANAGER, WATCHED, Operand

OFF = "all-disabled"


@every(nodes_with_GPUs, "MIG manager runs where MIG is asked for", given())
def present_manager(node: Node) -> Iterator[Finding]:
    if node.owner or node.virtual or node.passed_through or not _wants_mig(node):
        return
    if node.label("gpu.deploy.operands") == "false" or node.change is not None:
        return
    managers = node.operands.get(MANAGER, ())
    if any(pod.running for pod in managers):
        return
    policy = value(node.around.policy)
    if node.config or not _switched_off(policy):
        yield _absent(node, managers, policy)


def _switched_off(policy: ClusterPolicySpec | None) -> bool:
    """Whether the operator was told to run no MIG manager: then slices without a wish are the host's own."""
    return bool(policy and policy.mig_manager and policy.mig_manager.enabled is False)


def _wants_mig(node: Node) -> bool:
    """Whether somebody asks MIG manager for something, or has MIG without asking it."""
    sliced = bool(node.labelled_profiles) or "-MIG-" in node.label("gpu.product")
    served = any(name.startswith(DEPLOY) for name in node.labels)
    return bool(node.config and node.config != OFF) or (sliced and served)


def _absent(node: Node, managers: tuple[GpuPod, ...], policy: ClusterPolicySpec | None) -> Finding:
    deploy = f"{DEPLOY}{MANAGER}"
    off = _switched_off(policy)
    state = managers[0].status.phase if managers else "no pod"
    switched = (
        "it is switched off in the ClusterPolicy"
        if off
        else f"{deploy} is {node.labels.get(deploy, 'absent')}"
    )
    return Finding(
        code=codes.NO_MANAGER,
        object=node.ref,
        message=(
            f"MIG manager does not run on {node.ref} ({state}; {switched}), while its configuration is "
            f"{node.config or 'absent'}: nobody makes it so, and its state {node.state or '(none)'} says "
            "nothing"
        ),
        evidence=(
            label(node, CONFIG),
            label(node, STATE),
            label(node, deploy),
            *(Evidence(pod.ref, ".status.phase", pod.status.phase) for pod in managers),
        ),
        look=(
            "kubectl get pods -A -o wide -l app=nvidia-mig-manager --field-selector "
            f"spec.nodeName={node.name}"
        ),
        remedy=(
            "switch migManager on in the ClusterPolicy, or take the label nvidia.com/mig.config away"
            if off
            else f"`kubectl label node NODE --overwrite {deploy}=true`; if no pod appears, restart "
            "the GPU "
            "operator, whose view of the node may be old; risk: MIG manager then makes the "
            "configuration, so see "
            "first that it is the one you want"
        ),
        cause=f"{state}|{switched}|{node.config}",
    )


@every(nodes_with_GPUs, "the pods that serve GPUs run on every node", given())
def running_operands(node: Node) -> Iterator[Finding]:
    must_be_judged(node)
    if not node.ready:
        raise NotKnown(Inapplicable("the node is not Ready"))
    found = node.operands
    sets = value(node.around.sets)
    for name in WATCHED:
        meant = [each for each in sets.get(name, ()) if _is_meant(each, node)]
        pods = found.get(name, ())
        if meant and not any(_serves(pod) for pod in pods):
            yield _not_running(node, BY_NAME[name], meant[0], pods)


def _is_meant(each: OperandSet, node: Node) -> bool:
    """Whether this DaemonSet selects the node."""
    return all(node.labels.get(key) == text for key, text in each.spec.template.spec.node_selector.items())


def _serves(pod: GpuPod) -> bool:
    statuses = pod.status.container_statuses
    return pod.running and all(status.ready for status in statuses)


def _not_running(node: Node, operand: Operand, of: OperandSet, pods: tuple[GpuPod, ...]) -> Finding:
    consequence = {
        "driver": "no GPU works on the node",
        "device-plugin": "the node offers no GPU to new pods",
        GFD: "its labels are not kept up",
    }.get(operand.name, "nobody sees what its GPUs do")
    states = ", ".join(_state(pod) for pod in pods) or "there is no pod"
    return Finding(
        code=codes.OPERAND_MISSING,
        object=node.ref,
        message=f"The {operand.title} of {of.ref} does not run on {node.ref} ({states}): {consequence}",
        evidence=(
            *(Evidence(pod.ref, ".status", _state(pod)) for pod in pods),
            Evidence(
                of.ref, ".spec.template.spec.nodeSelector", str(dict(of.spec.template.spec.node_selector))
            ),
        ),
        look=logs(node, operand.name)
        if pods
        else f"kubectl -n {of.ref.namespace} describe daemonset {of.ref.name}",
        remedy=(
            "read its log: the device plugin and GPU feature discovery end at once where the layout does not "
            "fit the strategy"
            if pods
            else "see why the DaemonSet makes no pod there: taints, resources of the node, the operator's log"
        ),
        mark=operand.name,
        cause=f"{operand.name}|{states}",
        severity=None if operand.name in ("driver", "device-plugin") else Severity.WARNING,
    )


def _state(pod: GpuPod) -> str:
    restarts = sum(status.restart_count for status in pod.status.container_statuses)
    ready = "ready" if _serves(pod) else "not ready"
    return f"{pod.status.phase}, {ready}, {restarts} restarts"


@every(nodes_with_GPUs, "GPU feature discovery was started after the last change", given(), Strength.PROOF)
def rediscovered(node: Node) -> Iterator[Finding]:
    if node.state != "success" or node.change is not None or node.owner or node.recent:
        return
    if not node.labelled_profiles and "-MIG-" not in node.label("gpu.product"):
        return
    described, configured = node.described_at, node.configured_at
    if described is None or configured is None:
        unknown = (
            "nvidia.com/gfd.timestamp" if described is None else f"who wrote {STATE} when (managedFields)"
        )
        raise NotKnown(Unknown(Reason.NOT_ASKED, f"{unknown} is not told", str(node.ref)))
    if configured - described <= timedelta(minutes=5):
        return
    yield Finding(
        code=codes.NOT_REDISCOVERED,
        object=node.ref,
        message=(
            f"GPU feature discovery on {node.ref} runs since {described:%Y-%m-%d %H:%M} UTC, and MIG manager "
            f"finished at {configured:%Y-%m-%d %H:%M} UTC: it was not restarted, so labels may be those "
            "of before"
        ),
        evidence=(
            label(node, "nvidia.com/gfd.timestamp"),
            Evidence(node.ref, f".metadata.managedFields of {STATE}", f"{configured:%Y-%m-%dT%H:%M:%SZ}"),
        ),
        look=show(node),
        remedy=f"`{restart(node, GFD)}`; risk: none",
        cause=kind_of(node),
    )
