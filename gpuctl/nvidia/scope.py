"""Which nodes are meant: all of them, or those that a person names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import LabelSelector
from gpuctl.facts.selectors import parse, selects
from gpuctl.facts.state import Each, Inapplicable, NotKnown, Reason, Unknown
from gpuctl.nvidia.objects import NodeView

NO_SUCH_NODE = "there is no such node"
NO_GPUS = Inapplicable("no node has NVIDIA GPUs")
_NONE_OF_THEM = Inapplicable("none of the nodes asked for has NVIDIA GPUs")


@dataclass(frozen=True)
class Scope:
    """The nodes of these names, if any are given, and with these labels, as `kubectl -l` has them."""

    names: tuple[str, ...] = ()
    labels: str = ""
    _selector: LabelSelector = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises ValueError if the labels are none."""
        object.__setattr__(self, "_selector", parse(self.labels))

    def takes(self, node: NodeView) -> bool:
        """Whether a node is meant."""
        named = not self.names or node.metadata.name in self.names
        return named and selects(self._selector, node.metadata.labels)

    def missed(self, nodes: Each[Ref, NodeView]) -> Iterator[tuple[Ref, Unknown]]:
        """The names that no node has: a misspelt name is not fine. Nothing where more nodes may be there."""
        refs = () if nodes.holes else tuple(Ref(NodeView.of, name) for name in self.names)
        for ref in refs:
            if ref not in nodes.entries:
                yield ref, Unknown(Reason.NOT_ASKED, NO_SUCH_NODE, str(ref))

    def without_gpus(self, nodes: Each[Ref, NodeView]) -> NotKnown:
        """What it means that no node which is meant has GPUs."""
        if not self.names and not self.labels:
            return NotKnown(NO_GPUS)
        if any(self.takes(node) for _, node in nodes.known()):
            return NotKnown(_NONE_OF_THEM)
        return NotKnown(Unknown(Reason.NOT_ASKED, f"no node has the labels {self.labels}", "nodes"))


EVERYWHERE = Scope()
