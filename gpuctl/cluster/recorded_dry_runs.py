"""The answers to dry runs that a record holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from gpuctl.audit.mask import masked, masked_text
from gpuctl.cluster.archive import File
from gpuctl.cluster.capture import Capture, Missing
from gpuctl.cluster.documents import load_yaml
from gpuctl.facts.kinds import Answer, Attempt, Moment
from gpuctl.facts.state import Known, Reason, State, Unknown

FOLDER: Final = "dry-run"
_FAILURES: Final = 300
SUFFIX: Final = "/dry-run"  # of the resource, as capture.yaml calls a dry run that is missing


class Sent(msgspec.Struct, frozen=True, omit_defaults=True, rename={"user": "as"}):
    """One try of a creation and the answer to it."""

    at: Moment
    seconds: float
    status: int
    body: dict[str, Any]
    namespace: str = ""
    user: str = ""
    sent: dict[str, Any] = {}


class _DryRuns(msgspec.Struct, frozen=True):
    attempts: tuple[Sent, ...] = ()


def answered(recorded: Iterable[File], capture: Capture | None, attempt: Attempt) -> State[Answer]:
    """The last answer to an attempt: a success after failures heals them."""
    what = f"dry run of {attempt}"
    for gap in capture.missing if capture else ():
        if gap.scope == missing(attempt, Unknown(gap.reason)).scope:
            return Unknown(gap.reason, gap.message, what)
    for file in recorded:
        if _stem(file.path) == attempt.kind.resource:
            try:
                sent = msgspec.convert(load_yaml(file.text()), _DryRuns).attempts
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one file is one unknown answer
                return Unknown(Reason.MALFORMED, f"{file.path}: {error}", what)
            answers = [each for each in sent if each.namespace == attempt.namespace]
            if answers:
                return Known(_last(answers))
    return Unknown(Reason.NOT_ASKED, "the snapshot holds no such dry run", what)


def _last(answers: Iterable[Sent]) -> Answer:
    """The last answer, and for how long there was none better."""
    in_order = sorted(answers, key=lambda each: each.at)
    last = in_order[-1]
    failing = list(takewhile(lambda each: each.status >= _FAILURES, reversed(in_order)))
    first = failing[-1] if failing else last
    lasted = (last.at - first.at).total_seconds() + last.seconds
    return Answer(last.at, last.seconds, last.status, last.body, round(lasted, 1))


def missing(attempt: Attempt, gap: Unknown) -> Missing:
    """The entry of capture.yaml for a dry run that told nothing."""
    resource = f"{attempt.kind.resource}{SUFFIX}"
    return Missing(resource, gap.reason, masked_text(gap.message), namespace=attempt.namespace)


def noted(attempt: Attempt, user: str, answer: Answer) -> Sent:
    """What is stored of one try."""
    return Sent(
        at=answer.at.astimezone(UTC),
        seconds=answer.seconds,
        status=answer.status,
        body=_clean(answer.body),
        namespace=attempt.namespace,
        user=user,
        sent=_clean(dict(attempt.body)),
    )


def write(folder: Path, resource: str, sent: Sequence[Sent]) -> None:
    """Stores all tries of one kind, in the order of their times. Raises OSError."""
    import yaml

    file = folder / FOLDER / f"{resource}.yaml"
    file.parent.mkdir(exist_ok=True)
    tree = {"attempts": msgspec.to_builtins(sorted(sent, key=lambda each: each.at))}
    file.write_text(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120), encoding="utf-8")


def _clean(body: dict[str, Any]) -> dict[str, Any]:
    """A Status is words, anything else an object."""
    if body.get("kind") == "Status":
        return {key: masked_text(part) if key == "message" else part for key, part in body.items()}
    return masked(body) or {}


def _stem(path: str) -> str:
    name = PurePosixPath(path).name.removesuffix(".gz")
    return name.rpartition(".")[0]
