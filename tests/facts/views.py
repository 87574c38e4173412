"""Two small views for tests of the vocabulary."""

from __future__ import annotations

from typing import ClassVar

from gpuctl.facts.kinds import Kind, View

PODS = Kind("", ("v1",), "Pod", "pods", namespaced=True)
NODES = Kind("", ("v1",), "Node", "nodes", namespaced=False)


class PodView(View, frozen=True):
    of: ClassVar[Kind] = PODS
    spec: dict[str, str] = {}


class OtherPodView(View, frozen=True):
    of: ClassVar[Kind] = PODS


class NodeView(View, frozen=True):
    of: ClassVar[Kind] = NODES


def pod(name: str, namespace: str = "default") -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}}


def node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
