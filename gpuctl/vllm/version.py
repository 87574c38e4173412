"""Versions of vLLM as images and logs write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Final

# `v0.11.0rc2.dev399+ge94cfd51d`, `0.10.1.1`, `v0.8.5-cu128`, `0.9`. A bare date or hash is no version.
_VERSION: Final = re.compile(
    r"(?<![\w.])v?(0|1)\.(\d{1,2})(?:\.(\d{1,2}))?(?![\d])(?:[.+\-_]?[A-Za-z0-9.+_-]*)?"
)
# What a build from source without the repository's tags calls itself: `0.1.dev15312+g690e127b1`, `0.0.0`.
_UNTAGGED: Final = re.compile(r"v?0\.(?:1[.+\-_]?dev|0(?!\d)).*")


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """`text` is what was written; only major, minor and patch are compared."""

    major: int
    minor: int
    patch: int
    text: str

    @property
    def key(self) -> tuple[int, int, int]:
        """What decides the order."""
        return self.major, self.minor, self.patch

    def __lt__(self, other: Version) -> bool:
        return self.key < other.key

    def __str__(self) -> str:
        return self.text

    def before(self, *wanted: int) -> bool:
        """Whether this is older than, say, 0, 10, 1."""
        return self.key < wanted


def is_written(text: str) -> bool:
    """Whether a text is written as versions are, also one that names no release."""
    return _VERSION.fullmatch(text.strip()) is not None


def parse(text: str) -> Version | None:
    """The version in a tag or a log line's bracket; None if it names none, as that of an untagged build."""
    found = _VERSION.fullmatch(text.strip())
    if not found or _UNTAGGED.fullmatch(text.strip()):
        return None
    return Version(int(found[1]), int(found[2]), int(found[3] or 0), text.strip().removeprefix("v"))


def of_image(image: str) -> Version | None:
    """The version an image's tag names. Tags of other projects' own counting are not asked: see engines."""
    last = image.partition("@")[0].rpartition("/")[2]
    _, _, tag = last.partition(":")
    for part in (tag, tag.removeprefix("vllm-"), *re.split(r"[-_]", tag)):
        version = parse(part) if "." in part else None
        if version is not None:
            return version
    return None
