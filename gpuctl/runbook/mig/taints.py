"""Taints of a node, as a patch has to test them, and who gets past them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

import msgspec

from gpuctl.facts.fact import Named, given
from gpuctl.facts.kinds import Kind, Ref, View
from gpuctl.facts.objects import Taint, Toleration
from gpuctl.facts.state import Each, NotKnown, Reason, Unknown
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.target import TARGET, the_target_node

# Kubernetes puts these on nodes by itself, and lets pods of DaemonSets tolerate them.
_OF_KUBERNETES: Final = "node.kubernetes.io/"


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    taints: tuple[dict[str, Any], ...] = ()


class TaintedNode(View, frozen=True):
    """A node with its taints word by word: a patch that replaces the list tests that it is still this one."""

    of: ClassVar[Kind] = NodeView.of
    spec: _Spec = _Spec()

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Its taints."""
        return tuple(map(taint_of, self.spec.taints))


def taint_of(raw: Mapping[str, Any]) -> Taint:
    """A taint as the API has it."""
    return Taint(raw.get("key", ""), raw.get("effect", ""), raw.get("value", ""))


@given(Named(TaintedNode, the_target_node), TARGET)
def the_node_with_its_taints(found: Each[Ref, TaintedNode], name: str) -> TaintedNode:
    view = found.get(Ref(NodeView.of, name))
    if view is None:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "there is no such node", name))
    return view


TAINTED: Final = the_node_with_its_taints


def bars_daemons(taints: Iterable[Taint], tolerations: Collection[Toleration]) -> Iterator[Taint]:
    """The taints that keep pods of a DaemonSet with these tolerations from being made on a node."""
    for taint in taints:
        if not taint.key.startswith(_OF_KUBERNETES) and taint.keeps_out(tolerations):
            yield taint
