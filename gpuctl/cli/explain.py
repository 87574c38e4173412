"""gpuctl explain: what a check looks at, or what a code means and what to do. Offline."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from gpuctl.cli import complete


def explain(
    topic: Annotated[
        str, typer.Argument(metavar="CODE|CHECK", help="Such as KWH001.", autocompletion=complete.topics)
    ],
) -> None:
    """Explain a check or a code, offline.

    What it means, how to see it by hand, and what to do.
    """
    from gpuctl.audit.catalogue import UnknownName, catalogue
    from gpuctl.cli.border import Stop

    texts = {}
    for check in catalogue().checks:
        texts[check.id] = check.readme()
        texts.update((code.id, _section(check.readme(), code.id)) for code in check.codes)
    found = {name.lower(): text for name, text in texts.items()}.get(topic.lower())
    if found is None:
        raise Stop(str(UnknownName(topic, list(texts))))
    _show(found)


def _section(readme: str, code: str) -> str:
    """The part of a check's text under the heading of a code."""
    match = re.search(rf"^## {code}\b.*?(?=^## |\Z)", readme, re.MULTILINE | re.DOTALL)
    if match is None:
        raise LookupError(f"the README has no section for {code}")
    return match.group().rstrip() + "\n"


def _show(markdown: str) -> None:
    from gpuctl.cli import screen

    console = screen.out()
    if not console.is_terminal:
        console.out(markdown, end="", highlight=False)
        return
    from rich.markdown import Markdown

    console.print(Markdown(markdown))
