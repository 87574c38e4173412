"""Flags that several verbs share, declared once and handed to each verb as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Flags = Mapping[str, tuple[Any, Any]]  # annotation and default, by name

# Heavy to import and not needed to parse: any stand-in serves for the annotation of such a parameter.
_STAND_INS = dict.fromkeys(
    ("Access", "Acting", "Asking", "Looking", "Means", "Monitoring", "Needs", "Viewing"), object
)


@dataclass(frozen=True, eq=False)
class Group:
    """Flags that belong together, and what is made of them. As a decorator it gives a verb the flags, and
    hands it the value as its parameter of this name."""

    parameter: str
    flags: Flags
    make: Callable[..., Any]

    def __call__(self, command: Callable[..., None]) -> Callable[..., None]:
        def wrapper(**given: Any) -> None:
            values = {name: given.pop(name) for name in self.flags}
            command(**given, **{self.parameter: self.make(**values)})

        signature = inspect.signature(command, eval_str=True, locals=_STAND_INS)
        own = {
            each.name: (each.annotation, each.default)
            for each in signature.parameters.values()
            if each.name != self.parameter
        }
        declare(wrapper, {**own, **self.flags})
        wrapper.__doc__ = command.__doc__
        wrapper.__name__ = command.__name__
        return wrapper


def declare(function: Callable[..., None], flags: Flags) -> None:
    """Gives a function that takes anything by name these flags as its signature, for typer to read."""
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in flags.items()
        ]
    )
    function.__annotations__ = {name: annotation for name, (annotation, _) in flags.items()}


def with_flags(parameter: str, flags: Flags, make: Callable[..., Any]) -> Group:
    """Gives a verb these flags, and hands it what `make` makes of them as its parameter of that name."""
    return Group(parameter, flags, make)


def together(parameter: str, groups: Sequence[Group], make: Callable[..., Any]) -> Group:
    """Groups as one: its value is made of theirs, by the names of their parameters."""

    def made(**given: Any) -> Any:
        return make(
            **{each.parameter: each.make(**{name: given[name] for name in each.flags}) for each in groups}
        )

    return Group(parameter, {name: flag for each in groups for name, flag in each.flags.items()}, made)
