"""Flags that several verbs share, declared once and handed to each verb as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

# Heavy to import and not needed to parse: any stand-in serves for the annotation of such a parameter.
_STAND_INS = {"Access": object, "Looking": object}


def with_flags(
    parameter: str, flags: Mapping[str, tuple[Any, Any]], make: Callable[..., Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a verb the flags (annotation and default by name), and hands it what `make` makes of them as
    its parameter of that name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def wrapper(**given: Any) -> None:
            values = {name: given.pop(name) for name in flags}
            command(**given, **{parameter: make(**values)})

        signature = inspect.signature(command, eval_str=True, locals=_STAND_INS)
        own = [each for each in signature.parameters.values() if each.name != parameter]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in flags.items()
        ]
        parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *added]
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
        wrapper.__doc__ = command.__doc__
        wrapper.__name__ = command.__name__
        return wrapper

    return decorate
