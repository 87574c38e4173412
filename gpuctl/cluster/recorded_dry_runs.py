"""The answers to dry runs that a record holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gpuctl.cluster.archive import File
from gpuctl.cluster.capture import Moment
from gpuctl.cluster.documents import load_yaml
from gpuctl.facts.kinds import Answer, Attempt
from gpuctl.facts.state import Known, Reason, State, Unknown


class _Sent(msgspec.Struct, frozen=True):
    at: Moment
    seconds: float
    status: int
    body: dict[str, Any]
    namespace: str = ""

    @property
    def answer(self) -> Answer:
        return Answer(self.at, self.seconds, self.status, self.body)


class _DryRuns(msgspec.Struct, frozen=True):
    attempts: tuple[_Sent, ...] = ()


def answered(recorded: Iterable[File], attempt: Attempt) -> State[Answer]:
    """The last answer to an attempt: a success after failures heals them."""
    what = f"dry run of {attempt.kind} in {attempt.namespace}"
    for file in recorded:
        if _stem(file.path) == attempt.kind.resource:
            try:
                sent = msgspec.convert(load_yaml(file.text()), _DryRuns).attempts
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one file is one unknown answer
                return Unknown(Reason.MALFORMED, f"{file.path}: {error}", what)
            answers = [each for each in sent if each.namespace == attempt.namespace]
            if answers:
                return Known(max(answers, key=lambda each: each.at).answer)
    return Unknown(Reason.NOT_ASKED, "the snapshot holds no such dry run", what)


def _stem(path: str) -> str:
    name = PurePosixPath(path).name.removesuffix(".gz")
    return name.rpartition(".")[0]
