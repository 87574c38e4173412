"""The start of every engine's log can be read."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import given
from gpuctl.facts.state import Inapplicable, NotKnown, Unknown
from gpuctl.vllm.engine import Engine
from gpuctl.vllm.facts import engines_of_vllm


@every(engines_of_vllm, "the log of every engine can be read", given(), Strength.PROOF)
def readable_logs(engine: Engine) -> Iterator[Finding]:
    if engine.state == "not started":
        raise NotKnown(Inapplicable("it never ran"))
    if isinstance(engine.log, Unknown | Inapplicable):
        raise NotKnown(engine.log)
    yield from ()
