"""Every engine is of a release that is still looked after."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Finding
from gpuctl.checks.vllm_mode import codes
from gpuctl.checks.vllm_mode.words import finding, in_spec, log_command
from gpuctl.facts.fact import given
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.vllm.engine import Engine
from gpuctl.vllm.facts import engines_of_vllm

LAST_OLD = (0, 11, 0)


@every(engines_of_vllm, "every engine is of a release with the V1 engine alone", given(), Strength.PROOF)
def current_releases(engine: Engine) -> Iterator[Finding]:
    v0 = engine.start is not None and engine.start.engine == "V0"
    if engine.version is None and not v0:
        said = f"neither its log nor its image {engine.found.container.image} tells the version"
        raise NotKnown(Unknown(Reason.NOT_ASKED, said, str(engine.ref)))
    if v0 or (engine.version is not None and engine.version.before(*LAST_OLD)):
        which = ", with the V0 engine that 0.11 removed" if v0 else ""
        yield finding(
            engine,
            codes.OLD_ENGINE,
            f"is vLLM {engine.version or 'of an old release'}{which}: "
            "its graphs lie outside of its memory budget, and its log tells less",
            (in_spec(engine, f"image {engine.found.container.image}"),),
            log_command(engine, "version|LLM engine"),
            "plan the upgrade; 0.20 counts graphs within --gpu-memory-utilization and raises its default "
            "from 0.90 to 0.92",
            cause="old",
        )
