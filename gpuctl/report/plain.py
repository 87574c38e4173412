"""Making strings that came from a cluster safe to show.

A label or a message may hold ANSI escapes, newlines, or marks that reverse the reading direction. Whatever
is not printable is written as an escape, so what a person sees is what is there.
"""

from __future__ import annotations

import unicodedata

# Control, format (such as bidirectional marks), surrogate, private, unassigned, line and paragraph ends.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plain(text: str) -> str:
    """The text on one line, with every character that does not show as itself written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    if character in _NAMES:
        return _NAMES[character]
    point = ord(character)
    if point < 0x100:  # noqa: PLR2004 - the last code point that two hexadecimal digits can write
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"  # noqa: PLR2004
