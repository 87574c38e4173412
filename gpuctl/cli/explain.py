"""gpuctl explain: what a check looks at, what a code means and what to do, what a runbook does. Offline."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from gpuctl.cli import complete


def explain(
    topic: Annotated[
        str,
        typer.Argument(metavar="CODE|CHECK|RUNBOOK", help="Such as KWH001.", autocompletion=complete.topics),
    ],
) -> None:
    """Explain a check, a code or a runbook, offline.

    What it means, how to see it by hand, and what to do.
    """
    from gpuctl.audit.catalogue import UnknownName, catalogue
    from gpuctl.cli.border import Stop
    from gpuctl.runbook.catalogue import BOOKS

    if topic.lower() in BOOKS:
        _show(_of_runbook(topic.lower()))
        return
    texts = {}
    for check in catalogue().checks:
        texts[check.id] = check.readme()
        texts.update((code.id, _section(check.readme(), code.id)) for code in check.codes)
    found = {name.lower(): text for name, text in texts.items()}.get(topic.lower())
    if found is None:
        raise Stop(str(UnknownName(topic, [*texts, *BOOKS])))
    _show(found)


def _section(readme: str, code: str) -> str:
    """The part of a check's text under the heading of a code."""
    match = re.search(rf"^## {code}\b.*?(?=^## |\Z)", readme, re.MULTILINE | re.DOTALL)
    if match is None:
        raise LookupError(f"the README has no section for {code}")
    return match.group().rstrip() + "\n"


def _of_runbook(id_: str) -> str:
    """What a runbook does, what must hold before it acts, and what can be taken back, in Markdown."""
    from gpuctl.runbook.catalogue import runbook

    book = runbook(id_)
    guards = "\n".join(
        f"- {guard.id}: {guard.says}" + f" (`{guard.override}`)" * bool(guard.override)
        for guard in book.guards
    )
    options = "\n".join(f"- `{option.flag}`: {option.help}" for option in book.flags)
    parts = (
        f"# {book.id}: {book.title}",
        book.about,
        "## What must hold\n\nA flag in brackets takes the risk of a guard; the others have no override.",
        guards,
        f"## Options\n\n{options}" if options else "",
        f"## Undo\n\n{book.back[0].upper()}{book.back[1:]}.",
        f"See `gpuctl plan {book.id} --help`, and `gpuctl rbac --for {book.id}` for the role it takes.",
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _show(markdown: str) -> None:
    from gpuctl.cli import screen

    console = screen.out()
    if not console.is_terminal:
        console.out(markdown, end="", highlight=False)
        return
    from rich.markdown import Markdown

    console.print(Markdown(markdown))
