"""What the findings of this check have in common: evidence, how to look, what to call things."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from gpuctl.audit.finding import Code, Evidence, Finding, Severity
from gpuctl.facts.kinds import Ref
from gpuctl.vllm.engine import Engine
from gpuctl.vllm.log import Quote
from gpuctl.vllm.mode import Mode


def get(ref: Ref, output: str = "yaml") -> str:
    """The command that shows an object."""
    place = f"-n {shlex.quote(ref.namespace)} " if ref.namespace else ""
    return f"kubectl {place}get {ref.kind.resource} {shlex.quote(ref.name)} -o {output}"


def log_command(engine: Engine, words: str = "", *, previous: bool = False) -> str:
    """The command that shows the beginning of an engine's log, or the lines with some words in it."""
    pod = engine.ref.pod
    before = " --previous" if previous else ""
    shown = (
        f"kubectl -n {shlex.quote(pod.namespace)} logs {shlex.quote(pod.name)} -c "
        f"{shlex.quote(engine.ref.container)} --limit-bytes=1000000{before}"
    )
    return f"{shown} | grep -E {shlex.quote(words)}" if words else shown


def arguments_command(engine: Engine) -> str:
    """The command that shows what a container is started with."""
    pod = engine.ref.pod
    path = f"jsonpath={{.spec.containers[?(@.name==\"{engine.ref.container}\")]['command','args','env']}}"
    return f"kubectl -n {shlex.quote(pod.namespace)} get pod {shlex.quote(pod.name)} -o {shlex.quote(path)}"


def quoted(engine: Engine, quote: Quote | None) -> Iterator[Evidence]:
    """A line of the engine's log."""
    if quote is not None:
        at = f" at {quote.at:%Y-%m-%d %H:%M:%S} UTC" if quote.at else ""
        yield Evidence(engine.ref.pod, f"log of container {engine.ref.container}{at}", quote.text)


def line_with(engine: Engine, words: str) -> Iterator[Evidence]:
    """The line of the engine's start that holds these words."""
    quotes = engine.start.quotes if engine.start else ()
    found = next((quote for quote in quotes if words in quote.text), None)
    yield from quoted(engine, found)


SWITCH = "vllm-switch-mode"
_SWITCHED = {"Deployment": "", "StatefulSet": "statefulset/"}


def switched(engine: Engine, to: str) -> str:
    """The runbook that switches the engine, in brackets; nothing where another than a Deployment or
    StatefulSet makes its pods."""
    kind, _, name = engine.workload.partition(" ")
    if kind not in _SWITCHED:
        return ""
    target = shlex.quote(f"{_SWITCHED[kind]}{engine.ref.pod.namespace}/{name}")
    return f" (`gpuctl plan {SWITCH} {target} --to {to}`)"


def of_mode(engine: Engine, mode: Mode) -> tuple[Evidence, ...]:
    """How the mode is known: a line of the log, or what the pod's spec says."""
    shown = tuple(quoted(engine, mode.quote))
    if shown:
        return shown
    return (in_spec(engine, f"{mode.why}{of_version(engine)}"),)


def of_version(engine: Engine) -> str:
    """`, vLLM 0.11.0`, or nothing where that is not known."""
    return f", vLLM {engine.version}" if engine.version else ""


def in_spec(engine: Engine, observed: str) -> Evidence:
    """Something that the container's spec says."""
    return Evidence(engine.ref.pod, f"container {engine.ref.container}", observed)


def named(engine: Engine) -> str:
    """`the engine in Pod serving/llm-0 (Deployment llm)`: the subject of a sentence."""
    others = sum(each.name != engine.ref.container for each in engine.pod.spec.containers)
    container = f", container {engine.ref.container}" if others else ""
    return f"the engine in {engine.ref.pod}{container} ({engine.workload})"


def finding(
    engine: Engine,
    code: Code,
    says: str,
    evidence: tuple[Evidence, ...],
    look: str,
    remedy: str,
    *,
    mark: str = "",
    cause: str = "",
    severity: Severity | None = None,
) -> Finding:
    """A finding about an engine's pod. `says` goes on after the engine's name."""
    several = f"{engine.ref.container} {mark}".strip()
    sentence = f"{named(engine)} {says}"
    return Finding(
        code=code,
        object=engine.ref.pod,
        message=sentence[0].upper() + sentence[1:],
        evidence=evidence,
        look=look,
        remedy=remedy,
        mark=several,
        cause=f"{engine.ref.pod.namespace} {engine.workload} {cause}".strip() if cause else "",
        severity=severity,
        runbook=SWITCH if f"gpuctl plan {SWITCH}" in remedy else None,
    )


def gib(number: float) -> str:
    """`0.71 GiB`."""
    return f"{number:.2f} GiB"


def percent(share: float) -> str:
    """`92 %`."""
    return f"{share * 100:.4g} %"


def mapping(**values: Any) -> dict[str, Any]:
    """The values that are known."""
    return {name: value for name, value in values.items() if value not in (None, "", (), [], {})}
