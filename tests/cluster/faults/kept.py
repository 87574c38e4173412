"""Results of cases, on the disk as soon as they are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from .cases import Known
from .everything import told
from .matrix import Result

Key = tuple[str, str, str]


class Kept:
    """What is in these files; what comes to it is added to the last one."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
        self.all: dict[Key, Result] = {}
        for each in (msgspec.json.decode(line, type=Result) for line in lines):
            self.all[each.key] = each
        self.good = {name for name, each in self.all.items() if not each.wrong}
        self.played: list[Result] = []

    @property
    def known(self) -> Known | None:
        """The write calls, if they were learned."""
        found = [file.with_suffix(".known") for file in self._files if file.with_suffix(".known").exists()]
        return msgspec.json.decode(found[0].read_bytes(), type=Known) if found else None

    def learn(self, known: Known) -> None:
        if self._files:
            self._files[-1].with_suffix(".known").write_bytes(msgspec.json.encode(known))

    def take(self, result: Result) -> None:
        told(result)
        self.all[result.key] = result
        self.played.append(result)
        if self._files:
            with self._files[-1].open("a") as file:
                file.write(msgspec.json.encode(result).decode() + "\n")
