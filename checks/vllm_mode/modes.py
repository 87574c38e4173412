"""Every engine runs in a known mode, the one that is required, and the one that its author asked for."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every, holds
from gpuctl.audit.finding import Code, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.vllm_mode import codes
from gpuctl.checks.vllm_mode.requirement import (
    ANNOTATION,
    EAGER,
    GRAPHS,
    KNOWN,
    Requirement,
    annotated,
    requirement,
)
from gpuctl.checks.vllm_mode.words import (
    arguments_command,
    finding,
    get,
    in_spec,
    log_command,
    of_mode,
    of_version,
    switched,
)
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown
from gpuctl.vllm.arguments import of_environment, of_words
from gpuctl.vllm.configured import configured
from gpuctl.vllm.engine import Engine, known_mode
from gpuctl.vllm.engines import EngineRef
from gpuctl.vllm.facts import DEPLOYMENTS, engines_of_vllm
from gpuctl.vllm.launch import launch, variables
from gpuctl.vllm.log import Sign
from gpuctl.vllm.mode import Mode
from gpuctl.vllm.objects import EngineContainer, EngineDeployment

MODE_LINES = "enforce_eager|cudagraph|Cudagraph|CUDA graph|Graph capturing|Enforce eager"
COST = (
    "eager mode costs a factor of 2 to 7 in time per token (measured: 44 against 6.5 ms on 8 H100); "
    "graphs cost 0.2 to 2.5 GiB per GPU"
)


@every(
    engines_of_vllm,
    "it is known of every engine whether it runs eager or with graphs",
    given(POLICY),
    Strength.PROOF,
)
def known_modes(engine: Engine, policy: Policy) -> Iterator[Finding]:
    said = annotated(engine)
    if said and said not in KNOWN:
        yield finding(
            engine,
            codes.UNKNOWN_ANNOTATION,
            f"bears the annotation {ANNOTATION} with a value that is none of {', '.join(KNOWN)}",
            (in_spec(engine, f"{ANNOTATION}: {said}"),),
            get(engine.ref.pod),
            f"set {ANNOTATION} in the pod template to one of {', '.join(KNOWN)}; risk: that rolls the pods",
        )
    mode = engine.mode
    asked = engine.asked_for_eager
    if not mode.graphs and asked and not requirement(engine, policy).asks:
        yield finding(
            engine,
            codes.DELIBERATE_EAGER,
            f"runs eager ({mode.confidence}), as its pod asks by {asked}",
            of_mode(engine, mode),
            log_command(engine, MODE_LINES),
            f"nothing, if that is meant; {COST}",
            cause="deliberate",
        )


@every(engines_of_vllm, "every engine runs in the mode that is required of it", given(POLICY))
def required_modes(engine: Engine, policy: Policy) -> Iterator[Finding]:
    wanted = requirement(engine, policy)
    if not wanted.asks:
        raise NotKnown(Inapplicable("no mode is required"))
    mode = _required_to_be_known(engine)
    if wanted.mode == GRAPHS and not mode.graphs:
        yield _violation(engine, mode, wanted, codes.EAGER_FORBIDDEN, _without_eager(engine))
    if wanted.mode == EAGER and mode.graphs:
        remedy = (
            f"add --enforce-eager to the arguments of {engine.workload}{switched(engine, 'eager')}; mind "
            f"that {COST}"
        )
        yield _violation(engine, mode, wanted, codes.GRAPHS_FORBIDDEN, remedy)


def _required_to_be_known(engine: Engine) -> Mode:
    """A mode that is required and that nobody can read makes the run incomplete."""
    try:
        return engine.mode
    except NotKnown as gap:
        if isinstance(gap.state, Inapplicable) and engine.state in ("starting", "not started", "worker"):
            raise
        raise NotKnown(_unknown(gap, engine)) from gap


def _unknown(gap: NotKnown, engine: Engine) -> Unknown:
    state = gap.state
    return state if isinstance(state, Unknown) else Unknown(Reason.NOT_ASKED, str(state), str(engine.ref))


def _violation(engine: Engine, mode: Mode, wanted: Requirement, code: Code, remedy: str) -> Finding:
    return finding(
        engine,
        code,
        f"runs {mode} ({mode.confidence}{of_version(engine)}), and {wanted.by} says {wanted.mode}",
        of_mode(engine, mode),
        log_command(engine, MODE_LINES) if mode.quote else arguments_command(engine),
        remedy,
        cause=wanted.mode,
    )


def _without_eager(engine: Engine) -> str:
    asked = engine.asked_for_eager
    start = (
        f"take {asked} out of {engine.workload}{switched(engine, 'graphs')}"
        if asked
        else f"find out why {engine.workload} runs without graphs"
    )
    return (
        f"{start}; risk: graphs take 0.2 to 2.5 GiB of each GPU and lengthen the start, so leave room below "
        "--gpu-memory-utilization and time in the startup probe"
    )


@every(
    engines_of_vllm,
    "no engine runs eager unless its own pod asks for that",
    given(),
    Strength.PROOF,
)
def eager_on_purpose(engine: Engine) -> Iterator[Finding]:
    mode = engine.mode
    if mode.graphs or engine.asked_for_eager:
        return
    fell_back = engine.start is not None and Sign.FALLBACK in engine.start.signs
    if engine.opaque and not fell_back:
        raise NotKnown(Unknown(Reason.NOT_ASKED, f"it runs eager, and {engine.opaque}", str(engine.ref)))
    if engine.found.stack.platform:
        return
    yield finding(
        engine,
        codes.ACCIDENTAL_EAGER,
        f"runs eager ({mode.confidence}: {mode.why}{of_version(engine)}), and no flag, configuration key or "
        "wrapper variable in its pod asks for that by name",
        (*of_mode(engine, mode), in_spec(engine, "neither --enforce-eager nor a cudagraph_mode of NONE")),
        log_command(engine, MODE_LINES),
        f"find out what switched graphs off in {engine.workload} (the line above names it); if eager is "
        f"meant, say so with --enforce-eager. {COST[0].upper()}{COST[1:]}",
        cause=f"accident {mode.why}",
    )


@holds(
    "it is told what the checklist's strict reading (production runs eager) would say",
    given(POLICY, engines_of_vllm),
    Strength.PROOF,
)
def strict_reading(policy: Policy, engines: Each[EngineRef, Engine]) -> Iterator[Finding]:
    if policy.checks.vllm_mode.mode == EAGER:
        raise NotKnown(Inapplicable("the policy asks for it"))
    graphs = [(engine, mode) for _, engine in engines.known() if (mode := known_mode(engine)) and mode.graphs]
    for engine, mode in graphs:
        number = f"{len(graphs)} engines run" if len(graphs) > 1 else "1 engine runs"
        single = finding(
            engine,
            codes.STRICT_WOULD_FAIL,
            f"runs {mode}",
            of_mode(engine, mode),
            "gpuctl check vllm-mode --policy strict",
            "nothing: vLLM's documentation recommends graphs for production (gpuctl explain VLM003)",
        )
        yield _with(single, f"strict: would fail, {number} graphs")
    for _ in engines:  # raises NotKnown for what may be an engine, and could not be read
        pass


def _with(each: Finding, message: str) -> Finding:
    from dataclasses import replace

    return replace(each, message=message, cause="strict")


@every(
    engines_of_vllm,
    "what runs is what the workload asks for",
    given(Maybe(DEPLOYMENTS)),
    Strength.PROOF,
)
def same_after_restart(engine: Engine, deployments: State[Each[Ref, EngineDeployment]]) -> Iterator[Finding]:
    kind, _, name = engine.workload.partition(" ")
    if kind != "Deployment":
        raise NotKnown(Inapplicable("its pods are not made by a Deployment"))
    if not isinstance(deployments, Known):
        raise NotKnown(deployments)
    deployment = deployments.value.get(Ref(EngineDeployment.of, name, engine.ref.pod.namespace))
    if deployment is None:
        raise NotKnown(Inapplicable("its Deployment is gone"))
    planned = _planned(deployment, engine)
    if planned is None or planned.graphs == engine.mode.graphs:
        return
    running = engine.mode
    if engine.asked_for_eager == "" and not running.graphs:
        return  # it asked for graphs already, and did not get them: another finding
    yield finding(
        engine,
        codes.CHANGES_NEXT_START,
        f"runs {running}, and {deployment.ref} asks for {planned} from the next start ({planned.why})",
        (*of_mode(engine, running), in_spec(engine, f"{deployment.ref} differs from this pod")),
        get(deployment.ref),
        "nothing, if the change is meant: it comes with the next pod",
        cause="changes",
    )


def _planned(deployment: EngineDeployment, engine: Engine) -> Mode | None:
    """The mode of the Deployment's next pods, by their arguments; None where it is no matter of them. Raises
    `NotKnown` where they do not show it."""
    template = deployment.spec.template.spec
    container = next((each for each in template.containers if each.name == engine.ref.container), None)
    if container is None or _started_by(container) == _started_by(engine.found.container):
        return None
    environment = variables(container)
    started = launch(container, environment, entrypoint=engine.found.stack.entrypoint, files=lambda _: None)
    settings = of_words(started.words or ()).over(of_environment(environment.known, container.image))
    mode = configured(settings, environment.known, engine.version, platform=engine.found.stack.platform)
    if started.words is None or started.opaque or settings.get("config") or mode is None:
        said = "differs from this pod, and does not show the mode of the next"
        raise NotKnown(Unknown(Reason.NOT_ASKED, f"{deployment.ref} {said}", str(engine.ref)))
    return mode


def _started_by(container: EngineContainer) -> tuple[object, ...]:
    """What decides how it starts: admission adds mounts to every pod."""
    return container.image, container.command, container.args, container.env, container.env_from
