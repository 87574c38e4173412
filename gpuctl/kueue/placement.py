"""Which flavors a pod may run on, and which nodes a flavor stands for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gpuctl.facts.objects import LabelRequirement, LabelSelector, Taint
from gpuctl.facts.selectors import has_all, selects
from gpuctl.kueue.objects import NodeTerm, RequestingPodSpec, ResourceFlavor, ResourceNode

_COMPARED = ("Gt", "Lt")


def untolerated(pod: RequestingPodSpec, flavor: ResourceFlavor) -> Taint | None:
    """A taint of the flavor that keeps the pod out; None if there is none."""
    tolerations = (*pod.tolerations, *flavor.spec.tolerations)
    return next((taint for taint in flavor.spec.node_taints if taint.keeps_out(tolerations)), None)


def suits(pod: RequestingPodSpec, flavor: ResourceFlavor, keys: Collection[str]) -> bool:
    """Whether the pod's selector and affinity admit the flavor. Kueue looks at no labels but those that the
    flavors of the group have (`keys`)."""
    labels = flavor.spec.node_labels
    wanted = {key: label for key, label in pod.node_selector.items() if key in keys}
    return has_all(labels, wanted) and _affine(pod, labels, keys)


def _affine(pod: RequestingPodSpec, labels: Mapping[str, str], keys: Collection[str]) -> bool:
    affinity = pod.affinity.node_affinity if pod.affinity else None
    terms = affinity.required.node_selector_terms if affinity and affinity.required else ()
    known = [tuple(_known(term, keys)) for term in terms]
    return not known or any(
        not term or selects(LabelSelector(match_expressions=term), labels) for term in known
    )


def _known(term: NodeTerm, keys: Collection[str]) -> Iterator[LabelRequirement]:
    for each in term.match_expressions:
        if each.key in keys and each.operator not in _COMPARED:
            yield each


def stands_for(flavor: ResourceFlavor, node: ResourceNode) -> bool:
    """Whether pods of the flavor may run on the node, as far as its labels go."""
    return has_all(node.metadata.labels, flavor.spec.node_labels)


def barring_taints(flavor: ResourceFlavor, node: ResourceNode) -> Iterator[Taint]:
    """The node's taints that the flavor neither tolerates nor names. Pods may tolerate them by themselves."""
    named = {(taint.key, taint.effect) for taint in flavor.spec.node_taints}
    for taint in node.spec.taints:
        if taint.keeps_out(flavor.spec.tolerations) and (taint.key, taint.effect) not in named:
            yield taint
