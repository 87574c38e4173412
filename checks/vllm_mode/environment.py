"""Every variable that is set for an engine does something, and what the kubelet adds does no harm."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.checks.vllm_mode import codes
from gpuctl.checks.vllm_mode.words import arguments_command, finding, get, in_spec
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, NotKnown, Reason, Unknown
from gpuctl.vllm import environment as table
from gpuctl.vllm.engine import Engine
from gpuctl.vllm.facts import SERVICES, engines_of_vllm
from gpuctl.vllm.objects import LinkedService

KNOWS_PORT_SINCE = (0, 5, 0)


@every(
    engines_of_vllm,
    "every VLLM_ variable of an engine is one that its version reads",
    given(),
    Strength.PROOF,
)
def variables_in_use(engine: Engine) -> Iterator[Finding]:
    names = [name for name in _names(engine) if name.startswith("VLLM_") and _ignored(name, engine)]
    if names and engine.launch.script and not engine.launch.text:
        said = f"{engine.launch.script} may read {', '.join(names)}"
        raise NotKnown(Unknown(Reason.NOT_ASKED, said, str(engine.ref)))
    if engine.found.stack.why_not and engine.launch.words is None:
        raise NotKnown(Inapplicable(f"{engine.found.stack.name} reads variables of its own"))
    own = [name for name in names if engine.found.adds_variables and not _is_vllms(name)]
    for name in names:
        if name not in own:
            yield _finding(engine, name)
    if own:
        said = f"its fork of vLLM, or the plugin for its accelerator, may read {', '.join(own)}"
        raise NotKnown(Unknown(Reason.NOT_ASKED, said, str(engine.ref)))


def _is_vllms(name: str) -> bool:
    """Whether vLLM ever read the variable, or people believe that it does."""
    return name in table.BELIEVED or table.span(name) is not None


def _names(engine: Engine) -> list[str]:
    return [variable.name for variable in engine.found.container.env]


def _ignored(name: str, engine: Engine) -> bool:
    if table.SERVICE_LINK.fullmatch(name) and name != "VLLM_PORT":
        return False
    return table.ignored(name, engine.version) and not _referenced(name, engine)


def _referenced(name: str, engine: Engine) -> bool:
    """Whether a command, an argument, a script or another variable uses it."""
    container = engine.found.container
    texts = (
        *(container.command or ()),
        *(container.args or ()),
        engine.launch.text,
        *(variable.value or "" for variable in container.env),
    )
    pattern = re.compile(rf"\$(?:[({{]{name}\b|{name}\b)")
    return any(pattern.search(text) for text in texts)


def _finding(engine: Engine, name: str) -> Finding:
    flag = table.BELIEVED.get(name) or table.MOVED.get(name, "")
    decisive = name in table.DECISIVE and flag.lstrip("-") not in engine.settings.flags and not engine.opaque
    known = table.span(name)
    reads = f"since {known[0]}" + (f" up to {known[1]}" if known[1] else "") if known else "in no version"
    consequence = ": the engine runs with the default instead" if decisive else ""
    return finding(
        engine,
        codes.VARIABLE_IGNORED,
        f"is given {name}, which vLLM reads {reads}{consequence}",
        (in_spec(engine, f"env {name}{_of_version(engine)}"),),
        arguments_command(engine),
        f"use {flag} in its arguments"
        if flag
        else f"take {name} out, or have its command refer to it as $({name})",
        mark=name,
        cause=f"variable {name}",
        severity=Severity.ERROR if decisive else None,
    )


def _of_version(engine: Engine) -> str:
    return f", vLLM {engine.version}" if engine.version else ""


@every(
    engines_of_vllm,
    "no Service's name sets a variable that vLLM reads",
    given(SERVICES),
)
def harmless_service_links(engine: Engine, services: Each[Ref, LinkedService]) -> Iterator[Finding]:
    if engine.pod.spec.enable_service_links is False or "VLLM_PORT" in _names(engine):
        return
    if engine.version is not None and engine.version.before(*KNOWS_PORT_SINCE):
        return
    service = services.get(Ref(LinkedService.of, "vllm", engine.ref.pod.namespace))
    if service is None or service.spec.cluster_ip in ("", "None") or not _before(service, engine):
        return
    yield finding(
        engine,
        codes.SERVICE_NAMED_VLLM,
        f"has {service.ref} beside it, so the kubelet sets VLLM_PORT to tcp://…, and vLLM fails where it "
        "takes that for its own port",
        (
            Evidence(service.ref, ".spec.clusterIP", service.spec.cluster_ip),
            in_spec(engine, "enableServiceLinks is not false, and VLLM_PORT is not set"),
        ),
        get(service.ref),
        "set enableServiceLinks: false in the pod template, or rename the Service; risk: that rolls the pods",
        cause="service",
    )


def _before(service: LinkedService, engine: Engine) -> bool:
    """Only Services that exist when a container starts are in its environment."""
    made, started = service.metadata.creation_timestamp, engine.pod.status.start_time
    return made is None or started is None or made <= started or engine.status.restart_count > 0
