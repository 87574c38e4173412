"""What pods answered when a record was made: a file for each question, with the text or why there is none."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from gpuctl.audit.mask import masked_shell
from gpuctl.cluster.archive import Damaged, File
from gpuctl.facts.pods import Page, PodReading, Run
from gpuctl.facts.state import Each, Inapplicable, Known, Reason, State, Unknown

T = TypeVar("T")
Q = TypeVar("Q", Page, Run)

FOLDER: Final = "pods"
ABSENT: Final = "absent"  # the first line of an .err: the pod knows no such page
_TEXT, _ERROR = ".txt", ".err"
_NONE: Final = Inapplicable("the snapshot holds nothing that pods were asked")


def path(question: Page | Run) -> str:
    """Where a record keeps an answer, without the ending."""
    pod = question.pod
    if isinstance(question, Page):
        return f"{FOLDER}/{pod.namespace}/{pod.name}/{question.port}{_plain(question.path.partition('?')[0])}"
    return f"{FOLDER}/{pod.namespace}/{pod.name}/{question.container}-{_plain(' '.join(question.command))}"


def _plain(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text)


def write(folder: Path, question: Page | Run, text: str | None) -> None:
    """Stores an answer; None if there was no such page. Raises OSError."""
    _write(folder, f"{path(question)}{_ERROR if text is None else _TEXT}", ABSENT if text is None else text)


def write_gap(folder: Path, question: Page | Run, gap: Unknown) -> None:
    """Stores why there is no answer. Raises OSError."""
    _write(folder, f"{path(question)}{_ERROR}", f"{gap.reason.value}\n{gap.message}")


def _write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{masked_shell(text)}\n", encoding="utf-8")


@dataclass(frozen=True)
class RecordedPods:
    """The files under pods/."""

    files: Sequence[File] = field(repr=False)

    def read(self, questions: Collection[Q], reading: PodReading[Q, T]) -> State[Each[Q, T]]:
        """The answers of the record. One that holds none at all was made without asking."""
        states = {each: self._one(each, reading) for each in questions}
        if all(state is _NONE for state in states.values()):
            return _NONE
        return Known(Each({each: state for each, state in states.items() if state is not None}))

    def _one(self, question: Q, reading: PodReading[Q, T]) -> State[T] | None:
        what = str(question)
        try:
            text = self._text(f"{path(question)}{_TEXT}")
            if text is not None:
                return Known(reading.parse(question, text.removesuffix("\n")))
            said = self._text(f"{path(question)}{_ERROR}")
        except (Damaged, ValueError) as error:
            return Unknown(Reason.MALFORMED, " ".join(str(error).split()), what)
        except Exception as error:  # noqa: BLE001 - the border around one entry: a bug here must not cost the others
            return Unknown(Reason.INTERNAL, f"{type(error).__name__}: {error}", what)
        return _NONE if said is None else _gap(said, what)

    def _text(self, name: str) -> str | None:
        file = self._by_path.get(name)
        return None if file is None else file.text().decode(errors="replace")

    @cached_property
    def _by_path(self) -> Mapping[str, File]:
        return {file.path.removesuffix(".gz"): file for file in self.files}


def _gap(said: str, what: str) -> Unknown | None:
    reason, _, message = said.strip().partition("\n")
    if reason == ABSENT:
        return None
    known = Reason(reason) if reason in set(Reason) else Reason.MALFORMED
    return Unknown(known, message.strip(), what)
