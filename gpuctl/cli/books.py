"""Commands made of runbooks: each option of one is a flag, so help, parsing and checking are typer's.

The command line is read in two parts: the verb and the runbook first, then what that runbook takes. Only the
runbook that is asked for is loaded.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuctl.cli.acting import Means, with_means
from gpuctl.cli.border import Stop
from gpuctl.cli.flags import Flags, declare
from gpuctl.cli.planning import Wanted
from gpuctl.runbook.catalogue import BOOKS, runbook

if TYPE_CHECKING:
    from gpuctl.runbook.runbook import Option, Runbook

# What this does not know is kept for who knows it later.
REST_LATER = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": ["-h", "--help"],
}
# What follows the first word belongs to what that word names.
FIRST_WORD = {**REST_LATER, "allow_interspersed_args": False}
_PLANNING: Flags = {
    "max_unavailable": (
        Annotated[int, typer.Option("--max-unavailable", min=1, help="Targets at once, of several.")],
        1,
    ),
    "valid_for": (
        Annotated[
            str | None,
            typer.Option("--valid-for", help="For how long it may be applied; by policy 1h."),
        ],
        None,
    ),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asked a verb to do with a runbook. `flags`: the values of the verb's own, by name."""

    wanted: Wanted
    means: Means
    flags: Mapping[str, Any]


Handler = Callable[[Asked], None]


def run_book(verb: str, name: str, arguments: Sequence[str], handler: Handler, flags: Flags) -> None:
    """Parses what a runbook takes, with these flags of the verb's own, and hands over what is asked for."""
    if name not in BOOKS:
        raise Stop(f"there is no runbook {name!r}; there are {', '.join(BOOKS)}")
    run_command(verb, name, arguments, with_means(_function(runbook(name), handler, flags)))


def run_command(verb: str, name: str, arguments: Sequence[str], function: Callable[..., None]) -> None:
    """Parses the second part of a command line for a function with flags of typer's, and calls it."""
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        add_completion=False,
    )
    app.command(name)(function)
    app(args=list(arguments), prog_name=f"gpuctl {verb} {name}")


def _function(book: Runbook, handler: Handler, flags: Flags) -> Callable[..., None]:
    """A function whose signature has the runbook's options, for typer to make a command of."""
    own = {option.name: (_annotation(option), option.default or _nothing(option)) for option in book.flags}

    def run(*, means: Means, **given: Any) -> None:
        from gpuctl.cli.duration import seconds

        valid = given["valid_for"]
        wanted = Wanted(
            book,
            given["target"] or "",
            given.get("selector", ""),
            {name: _value(given[name]) for name in own},
            given["max_unavailable"],
            seconds(valid) if valid else None,
        )
        handler(Asked(wanted, means, {name: given[name] for name in flags}))

    declared = {"target": (_target(book), None), **_several(book), **own, **_PLANNING, **flags}
    declare(run, declared)
    run.__doc__ = f"{book.title[0].upper()}{book.title[1:]}.\n\n{book.about}"
    run.__name__ = book.id.replace("-", "_")
    return run


def with_overrides(book: Runbook, go_on: Callable[[Mapping[str, Any]], None]) -> Callable[..., None]:
    """A function that takes the overrides of a runbook's guards and hands over those that were given."""
    flags = {guard.override for guard in book.guards}
    own = [option for option in book.flags if option.flag in flags]

    def run(**given: Any) -> None:
        go_on({name: _value(each) for name, each in given.items() if each is not None})

    declare(run, {each.name: (_annotation(each), None) for each in own})
    return run


def command_of(book: Runbook, target: str, options: Mapping[str, Any]) -> str:
    """The command line by which a plan with these options is made."""
    words = ["gpuctl", "plan", book.id, *([] if book.default_target else [target])]
    for option in book.flags:
        value = options.get(option.name, option.default)
        if value == option.default or (isinstance(value, list | tuple) and not value):
            continue
        several = value if isinstance(value, list | tuple) else [value]
        words += [
            word for each in several for word in ([option.flag] if each is True else [option.flag, str(each)])
        ]
    return shlex.join(words)


def _target(book: Runbook) -> Any:
    return Annotated[str | None, typer.Argument(metavar=f"[{book.target}]", help="What is changed.")]


def _several(book: Runbook) -> Flags:
    """Several nodes can be named by their labels; other targets only by name."""
    if book.kind.kind != "Node":
        return {}
    help_ = "All nodes with these labels, one after the other."
    return {"selector": (Annotated[str, typer.Option("--selector", "-l", help=help_)], "")}


def _annotation(option: Option) -> Any:
    kind: Any = list[str] if isinstance(option.default, tuple) else type(option.default)
    return Annotated[kind | None, typer.Option(option.flag, help=option.help)]


def _nothing(option: Option) -> Any:
    if option.required:
        return ...
    return None if isinstance(option.default, tuple) else option.default


def _value(given: Any) -> Any:
    if given is None:
        return []
    return list(given) if isinstance(given, tuple | list) else given
