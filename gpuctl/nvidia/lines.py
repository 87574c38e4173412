"""Line by line through a text: rows of a known form, frames around them, and strays that are neither."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.output import Said, Trouble, judged, readable, shortened, too_long

ALIKE: Final = 256  # texts without UUIDs that are remembered: nodes of one kind print the same
_BORDER: Final = r"[ \t]*\+[-=+]+\+[ \t]*|[ \t]*\|[-=+ ]+\|[ \t]*"
_HEADING: Final = (
    r"[ \t]*\|(?!.*\bMIG \d)[ \t]*[^\d\s|].*\|[ \t]*"  # begins with a word, where a row has a number
)
_END: Final = re.compile(r"\+[-=+]+\+\s*\Z")


@dataclass(frozen=True, slots=True)
class Form:
    """How the rows of a text look. `rows` finds in one pass; the last of its groups holds strays."""

    pattern: re.Pattern[str]
    framed: bool

    @staticmethod
    def of(*rows: str, framed: bool) -> Form:
        """A text of these rows, in a table's frame or without."""
        frame = f"{_BORDER}|{_HEADING}|" if framed else ""
        return Form(re.compile(rf"^(?:{'|'.join(rows)}|{frame}[ \t]*|(.+))$", re.MULTILINE), framed)


@dataclass(frozen=True, slots=True)
class Scanned:
    """The rows of a text as the groups of its form, and what was said beside them."""

    rows: tuple[tuple[str, ...], ...]
    said: tuple[Said, ...]


def scan(output: Output, form: Form, empty: re.Pattern[str] | None = None) -> Scanned:
    """Reads a text of this form. Lines that fit `empty` say that there is nothing to list."""
    text = readable(output)
    rows: list[tuple[str, ...]] = []
    strays: list[str] = []
    frame = ("",) * form.pattern.groups
    for found in form.pattern.findall(text):
        if found[-1]:
            strays.append(found[-1])
        elif found != frame:
            rows.append(found)
    nothing = [line for line in strays if empty and empty.search(line)]
    said = [*too_long(text), *judged((line for line in strays if line not in nothing), output)]
    if form.framed and (rows or "|" in text) and not _closed(text, strays):
        said.append(Said(Trouble.UNREADABLE, f"the table breaks off after: {_tail(text)}"))
    elif not rows and not nothing and not said:
        said.append(Said(Trouble.UNREADABLE, "the answer is empty"))
    return Scanned(tuple(rows), tuple(dict.fromkeys(said)))


def _closed(text: str, strays: list[str]) -> bool:
    """Whether a table is closed by its border, whatever warnings stand behind it."""
    for line in reversed(strays):
        text = text.rstrip().removesuffix(line.rstrip())
    return _END.search(text) is not None


def _tail(text: str) -> str:
    return shortened(text.rstrip().rpartition("\n")[2])
