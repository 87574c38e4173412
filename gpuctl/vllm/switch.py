"""How an engine is switched between eager and graphs: what to change in its container, where that is plain.

Only what its own spec says by name is changed: a flag among its words, or the variable of a wrapper. What a
script, a --config file or a compilation config decides is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.vllm.arguments import Settings, of_environment, of_words
from gpuctl.vllm.configured import UNCERTAIN, configured
from gpuctl.vllm.engines import Found
from gpuctl.vllm.launch import launch, variables
from gpuctl.vllm.mode import Mode
from gpuctl.vllm.objects import EngineContainer

EAGER: Final = "enforce-eager"
FLAG: Final = f"--{EAGER}"


class Edit(msgspec.Struct, frozen=True, rename="camel"):
    """One field of a container, by its path inside: the words of a list as a whole, or one variable's value.
    `named`: the variable whose value it is; empty for words."""

    path: tuple[str, ...]
    before: Any
    after: Any
    named: str = ""

    def __str__(self) -> str:
        if self.named:
            return f"variable {self.named}: {self.before} -> {self.after}"
        gone = [word for word in self.before or () if word not in self.after]
        new = [word for word in self.after if word not in (self.before or ())]
        return "; ".join(
            [f"{word} is taken out of its {self.path[0]}" for word in gone]
            + [f"{word} is added to its {self.path[0]}" for word in new]
        )


@dataclass(frozen=True, slots=True)
class Switch:
    """What to change, the mode that is configured now, and the one that will be."""

    edits: tuple[Edit, ...]
    before: Mode
    after: Mode


def switch(found: Found, *, graphs: bool) -> Switch:
    """What makes the engine run with graphs, or eager. Raises NotKnown where that can't be told."""
    now = _reading(found, found.container)
    if now.mode.graphs is graphs:
        raise _unclear(found, f"it is configured for {now.mode} already")
    edits = tuple(_to_graphs(found, now) if graphs else _to_eager(found, now))
    after = _reading(found, edited(found.container, edits)) if edits else now
    if after.mode.graphs is not graphs:
        raise _unclear(found, f"nothing in its own spec decides it by name: {after.mode.why}")
    return Switch(edits, now.mode, after.mode)


@dataclass(frozen=True, slots=True)
class _Reading:
    settings: Settings
    mode: Mode


def _reading(found: Found, container: EngineContainer) -> _Reading:
    if found.stack.why_not:
        raise _unclear(found, found.stack.why_not)
    environment = variables(container)
    started = launch(container, environment, entrypoint=found.stack.entrypoint, files=lambda _: None)
    if started.words is None or started.opaque:
        raise _unclear(found, started.opaque or "its command does not show how it starts vLLM")
    settings = of_words(started.words).over(of_environment(environment.known, container.image))
    if settings.get("config"):
        raise _unclear(found, f"its --config file {settings.get('config')} may decide it too: change that")
    if environment.more:
        raise _unclear(found, "variables come from elsewhere (envFrom), which may decide it too")
    mode = configured(settings, environment.known, found.image_version, platform=found.stack.platform)
    if mode is None:
        raise _unclear(found, UNCERTAIN)
    return _Reading(settings, mode)


def _unclear(found: Found, why: str) -> NotKnown:
    return NotKnown(Unknown(Reason.NOT_ASKED, why, f"container {found.ref.container}"))


def _to_graphs(found: Found, now: _Reading) -> Iterator[Edit]:
    asked = now.settings.eager
    if asked is None:
        return
    container = found.container
    variable = _variable(container, asked.origin)
    if variable is not None:
        yield _valued(variable, container, "false")
    for field, words in _lists(container):
        rest = [word for word in words if not _is(word, EAGER)]
        if len(rest) < len(words):
            yield Edit((field,), list(words), rest)


def _to_eager(found: Found, now: _Reading) -> Iterator[Edit]:
    container = found.container
    against = now.settings.flags.get(f"no-{EAGER}")
    for field, words in _lists(container) if against else ():
        if any(_is(word, f"no-{EAGER}") for word in words):
            changed = [FLAG if _is(word, f"no-{EAGER}") else word for word in words]
            yield Edit((field,), list(words), changed)
            return
    wrapped = [
        number
        for number, each in enumerate(container.env)
        if each.value is not None and of_environment({each.name: "true"}, container.image).eager
    ]
    if wrapped:
        yield _valued(wrapped[0], container, "true")
        return
    for field, words in _lists(container)[:1]:  # the arguments, or a command without any
        yield Edit((field,), list(words), [*words, FLAG])


def _lists(container: EngineContainer) -> Sequence[tuple[str, tuple[str, ...]]]:
    both = (("args", container.args), ("command", container.command))
    return [(field, words) for field, words in both if words]


def _is(word: str, name: str) -> bool:
    return word.startswith("-") and word.lstrip("-").replace("_", "-") == name


def _variable(container: EngineContainer, name: str) -> int | None:
    found = [number for number, each in enumerate(container.env) if each.name == name]
    return found[-1] if found and container.env[found[-1]].value is not None else None


def _valued(number: int, container: EngineContainer, after: str) -> Edit:
    variable = container.env[number]
    return Edit(("env", str(number), "value"), variable.value, after, variable.name)


def edited(container: EngineContainer, edits: Sequence[Edit]) -> EngineContainer:
    """The container after the edits."""
    for edit in edits:
        field = edit.path[0]
        if field == "env":
            env = list(container.env)
            place = int(edit.path[1])
            env[place] = msgspec.structs.replace(env[place], value=edit.after)
            container = msgspec.structs.replace(container, env=tuple(env))
        else:
            container = msgspec.structs.replace(container, **{field: tuple(edit.after)})
    return container


def stands(container: EngineContainer, edit: Edit) -> Any:
    """What stands at the place of an edit; None for nothing, as where another variable stands there."""
    field = edit.path[0]
    if field != "env":
        words: tuple[str, ...] | None = getattr(container, field)
        return None if words is None else list(words)
    place = int(edit.path[1])
    if place >= len(container.env) or container.env[place].name != edit.named:
        return None
    return container.env[place].value
