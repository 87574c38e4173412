"""What a run is about: its target, its options and itself, as facts that guards and steps share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.facts.fact import Argument, Named, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, NotKnown, Reason, Unknown
from gpuctl.nvidia.objects import NodeView

# The name of what is changed: a node, a ClusterQueue, …
TARGET: Argument[str] = Argument("the target", "")
# What the person asked for, by the names of flags: `{"config": "all-1g.10gb", "force": True}`.
OPTIONS: Argument[Mapping[str, Any]] = Argument("options", {})


@dataclass(frozen=True, slots=True)
class Self:
    """The run that acts, so that it is not in its own way. Empty while planning."""

    run: str = ""


SELF: Argument[Self] = Argument("this run", Self())


@given(TARGET)
def the_target_node(name: str) -> Collection[Ref]:
    return (Ref(NodeView.of, name),)


@given(Named(NodeView, the_target_node), TARGET)
def node(found: Each[Ref, NodeView], name: str) -> NodeView:
    """The node that is the target, as it is now."""
    ref = Ref(NodeView.of, name)
    view = found.get(ref)
    if view is None:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "there is no such node", str(ref)))
    return view


NODE = node


@given(Named(NodeView, the_target_node), TARGET)
def uid_of_the_node(found: Each[Ref, NodeView], name: str) -> str:
    """By which the node is known to be the same later: another may get its name. Empty once it is gone."""
    view = found.get(Ref(NodeView.of, name))
    return view.metadata.uid if view else ""
