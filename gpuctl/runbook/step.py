"""A step of a runbook: one change with its verification and its undo, or one wait for something to come true.

Steps are data: what they need to know of the time before the change (uid, old value) is in their fields, so
that a journal can hold them and another process can go on with them. What *is* they learn from facts alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Rule
from gpuctl.runbook.writer import Writer


class Step(msgspec.Struct, frozen=True, rename="camel", tag_field="step"):
    """The base of all steps. `act` and `undo` may be called again and again: each looks at the facts and does
    what is still to be done. Both may raise WriteFailed; what they touch and is not known raises NotKnown.

    `held`: it must hold from when it is done to the end of the run, and is undone at its end.
    `once`: what it brought about may be gone later on purpose; once it is done it is not looked at again.
    `seconds`: how long it may take; `pause`: seconds between two looks.
    """

    held: ClassVar[bool] = False
    once: ClassVar[bool] = False
    seconds: ClassVar[float] = 120.0
    pause: ClassVar[float] = 2.0

    @property
    def says(self) -> str:
        """What it does, as a person would say it: `cordon node gpu-1`."""
        raise NotImplementedError

    @property
    def undoes(self) -> str:
        """What undoing it does; empty where there is nothing to undo."""
        return ""

    @property
    def limit(self) -> float:
        """Seconds this step may take, in either direction."""
        return self.seconds

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        """The facts that tell whether it holds, and what is to be done."""
        raise NotImplementedError

    @property
    def rules(self) -> frozenset[Rule]:
        """The permissions that acting and undoing take, beyond reading."""
        return frozenset()

    @property
    def evicts(self) -> tuple[str, ...]:
        """The pods that it was planned to ask to go, by uid."""
        return ()

    def holds(self, facts: Facts) -> bool:
        """Whether what it is for is true now."""
        raise NotImplementedError

    def stuck(self, facts: Facts) -> str:  # noqa: ARG002 - a part of the protocol
        """Why it will never hold, so that waiting is no use; empty while it may."""
        return ""

    def progress(self, facts: Facts) -> str:  # noqa: ARG002 - a part of the protocol
        """What is being waited for, in a few words."""
        return ""

    def learned(self, facts: Facts) -> Mapping[str, Any]:  # noqa: ARG002 - a part of the protocol
        """What was learned by the time it holds, for the result of the run."""
        return {}

    def act(self, facts: Facts, writer: Writer) -> None:
        """Brings it about, or nearer."""

    def undone(self, facts: Facts) -> bool:  # noqa: ARG002 - a part of the protocol
        """Whether nothing of it is left to undo."""
        return True

    def hampered(self, facts: Facts) -> str:  # noqa: ARG002 - a part of the protocol
        """Why undoing will never succeed, so that waiting is no use; empty while it may."""
        return ""

    def undo(self, facts: Facts, writer: Writer) -> None:
        """Takes back what this run changed, and only that."""
