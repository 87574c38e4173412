"""What engines say of themselves when they are asked, and whether that agrees with the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Finding
from gpuctl.checks.vllm_mode import codes
from gpuctl.checks.vllm_mode.words import arguments_command, finding, in_spec, quoted
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.pods import Page, Run
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown, attempt
from gpuctl.vllm.engine import Engine
from gpuctl.vllm.facts import COMMAND_LINES, HEADLESS, PAGES, engines_of_vllm
from gpuctl.vllm.mode import Mode

DEV_MODE = "VLLM_SERVER_DEV_MODE"
_DECISIVE = ("tensor-parallel-size", "pipeline-parallel-size", "gpu-memory-utilization", "max-model-len")


@every(
    engines_of_vllm,
    "every engine that is asked over HTTP answers",
    given(Maybe(PAGES)),
    Strength.PROOF,
)
def answering_engines(engine: Engine, pages: State[Each[Page, Any]]) -> Iterator[Finding]:
    _must_be_asked(engine, pages)
    if HEADLESS in engine.spec.flags:
        raise NotKnown(Inapplicable("it is headless: another pod's API serves it"))
    answered = engine.answered
    told = (answered.version, answered.metered)
    for state in (*told, answered.info):
        if isinstance(state, Unknown):
            raise NotKnown(state)
    if not any(told):
        said = "it knows neither /version nor /metrics where its API is expected"
        raise NotKnown(Unknown(Reason.MALFORMED, said, str(engine.ref)))
    yield from ()


@every(
    engines_of_vllm,
    "no engine's development endpoints are on",
    given(),
    Strength.PROOF,
)
def closed_development(engine: Engine) -> Iterator[Finding]:
    """By the pod's spec, or because they answer."""
    value = engine.environment.known.get(DEV_MODE, "")
    answers = isinstance(engine.answered.info, Known)
    if not answers and value in ("", "0"):
        if DEV_MODE in engine.environment.hidden:
            raise NotKnown(Unknown(Reason.NOT_ASKED, f"the value of {DEV_MODE} is not read", str(engine.ref)))
        return
    told = engine.informed.quote if engine.informed else None
    yield finding(
        engine,
        codes.DEVELOPMENT_ENDPOINTS,
        "has its development endpoints on, which show its configuration and environment to everybody who "
        "reaches its port, and let them reset its caches or put it to sleep",
        tuple(quoted(engine, told)) or (in_spec(engine, f"{DEV_MODE}={value}"),),
        arguments_command(engine),
        f"take {DEV_MODE} out of {engine.workload}; risk: what relies on those endpoints ends, such as "
        "sleep mode",
        cause="development",
    )


@every(
    engines_of_vllm,
    "the command line of every engine's process can be read",
    given(Maybe(COMMAND_LINES)),
    Strength.PROOF,
)
def readable_command_lines(engine: Engine, command_lines: State[Each[Run, Any]]) -> Iterator[Finding]:
    _must_be_asked(engine, command_lines)
    state = engine.answered.command_line
    if isinstance(state, Unknown):
        raise NotKnown(state)
    if isinstance(state, Known) and engine.process is None:
        said = f"the first process of its container is {state.value[0]}, which is not vLLM itself"
        raise NotKnown(Unknown(Reason.NOT_ASKED, said, str(engine.ref)))
    yield from ()


def _must_be_asked(engine: Engine, asked: State[Each[Any, Any]]) -> None:
    """An engine that still starts does not answer yet."""
    if not isinstance(asked, Known):
        raise NotKnown(asked)
    if engine.state in ("not started", "starting", "worker", "failed"):
        raise NotKnown(Inapplicable(f"the engine is {engine.state}"))


@every(
    engines_of_vllm,
    "an engine's log, answers and process tell what its pod's spec tells",
    given(),
    Strength.PROOF,
)
def agreeing_sources(engine: Engine) -> Iterator[Finding]:
    """A log that shows a fall back to eager is a finding of its own."""
    differing = tuple(_differing_modes(engine))
    flags = tuple(_differing_flags(engine))
    if not differing and not flags:
        return
    said = [f"{mode} by {source}" for source, mode in differing] or [f"with {each}" for each in flags]
    yield finding(
        engine,
        codes.SOURCES_DIFFER,
        f"runs {', '.join(said)}: {_who_is_right(engine)}",
        (
            *(each for _, mode in differing for each in quoted(engine, mode.quote)),
            *(
                in_spec(engine, f"{source}: {mode} ({mode.why})")
                for source, mode in differing
                if not mode.quote
            ),
            *(in_spec(engine, each) for each in flags),
        ),
        arguments_command(engine),
        "find out what stands between the pod's spec and the process: a wrapper script, an image's "
        "entrypoint, a log of an earlier process",
        cause="sources",
    )


def _who_is_right(engine: Engine) -> str:
    if engine.seen or engine.informed:
        return "what the engine itself says counts"
    return "what its process was started with counts"


def _differing_modes(engine: Engine) -> Iterator[tuple[str, Mode]]:
    specified = engine.specified.value if isinstance(engine.specified, Known) else None
    asked = attempt(lambda: engine.planned) if engine.process else None
    started = asked.value.value if isinstance(asked, Known) and isinstance(asked.value, Known) else None
    wanted = {"its process's command line": started, "its pod's spec": specified}
    told = {"its log": engine.seen, "/server_info": engine.informed}
    found = [(source, mode) for source, mode in {**told, **wanted}.items() if mode is not None]
    wants = {mode.graphs for mode in wanted.values() if mode}
    says = {mode.graphs for mode in told.values() if mode}
    if len(wants) > 1 or len(says) > 1 or (says == {True} and wants == {False}):
        yield from found


def _differing_flags(engine: Engine) -> Iterator[str]:
    if engine.process is None or engine.process.opaque or not isinstance(engine.specified, Known):
        return
    for name in _DECISIVE:
        runs, written = engine.process.settings.get(name), engine.spec.get(name)
        if runs != written and "$" not in written:
            yield f"--{name} {runs or 'left out'} where its pod's spec has {written or 'none'}"
