"""What a record holds of the insides of nodes: the outputs of commands, and why there are none."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuctl.audit.mask import masked_text
from gpuctl.cluster.archive import Damaged, File
from gpuctl.facts.nodes import Output, Target, parsed
from gpuctl.facts.state import Each, Known, Reason, State, Unknown

FOLDER: Final = "nodes"
KUBELET: Final = "kubelet-devices"
NOT_PROBED: Final = "the snapshot does not hold what is in this node"
_EXIT: Final = re.compile(r"exit (\d+)")
_SUFFIXES: Final = {KUBELET: ".json"}
# Files in which people keep much the same: the tables of nvidia-smi without arguments.
_STANDS_FOR: Final = {"nvidia-smi-q-x": "nvidia-smi.txt"}


@dataclass(frozen=True)
class Probed:
    """What came of looking into one node: by which place, what each command printed, or why it did not."""

    node: str
    at: datetime
    seconds: float
    place: str = ""
    outputs: Mapping[str, Output | Unknown] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    failed: Unknown | None = None


class _ProbeFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """probe.yaml."""

    at: datetime | None = None
    place: str = ""
    seconds: float | None = None
    commands: dict[str, str] = {}
    failed: str = ""
    message: str = ""


@dataclass(frozen=True)
class RecordedNodes:
    """The files under nodes/, by node."""

    files: tuple[File, ...] = field(default=(), repr=False)

    def commands(
        self, wanted: Sequence[tuple[str, Callable[[Output], Any]]], targets: Collection[Target]
    ) -> Sequence[State[Each[str, Any]]]:
        """What each command printed on each node when the record was made."""
        if not self.files:
            return [Unknown(Reason.NOT_ASKED, "the snapshot does not hold what is in nodes", "nodes")] * len(
                wanted
            )
        answers: list[dict[str, State[Any]]] = [{} for _ in wanted]
        for target in targets:
            folder = self._by_node.get(target.node, {})
            gap = _gap(folder, target)
            for (command, parse), answer in zip(wanted, answers, strict=True):
                answer[target.node] = gap or _answer(folder, command, parse, target.node)
        return [Known(Each(answer)) for answer in answers]

    @cached_property
    def _by_node(self) -> Mapping[str, Mapping[str, File]]:
        nodes: dict[str, dict[str, File]] = {}
        for file in self.files:
            _, _, rest = file.path.partition("/")
            node, _, name = rest.partition("/")
            if name:
                nodes.setdefault(node, {})[name.removesuffix(".gz")] = file
        return nodes


def _gap(folder: Mapping[str, File], target: Target) -> Unknown | None:
    """Why nothing is known of a node, or None if something is."""
    if not folder:
        return Unknown(Reason.NOT_ASKED, target.why_not or NOT_PROBED, target.node)
    file = folder.get("probe.yaml")
    if file is None or len(folder) > 1:
        return None
    try:
        probe = _probe(file)
    except ValueError as error:
        return Unknown(Reason.MALFORMED, f"{file.path}: {error}", target.node)
    if not probe.failed:
        return Unknown(Reason.NOT_ASKED, NOT_PROBED, target.node)
    return _unknown(probe.failed, probe.message, target.node)


def _probe(file: File) -> _ProbeFile:
    """Raises ValueError."""
    import yaml

    from gpuctl.cluster.documents import load_yaml

    try:
        return msgspec.convert(load_yaml(file.text()), _ProbeFile)
    except (yaml.YAMLError, Damaged, msgspec.ValidationError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def _unknown(reason: str, message: str, what: str) -> Unknown:
    """A reason of the contract, or any other words as they are."""
    word, _, rest = reason.strip().partition(":")
    if word in set(Reason) - {Reason.INTERNAL}:
        return Unknown(Reason(word), message or rest.strip(), what)
    return Unknown(Reason.SERVER_ERROR, ": ".join(part for part in (reason.strip(), message) if part), what)


def _answer(
    folder: Mapping[str, File], command: str, parse: Callable[[Output], Any], node: str
) -> State[Any]:
    what = f"{command} on {node}"
    told = folder.get(f"{command}{_SUFFIXES.get(command, '.txt')}")
    erred = folder.get(f"{command}.err")
    if told is None and command in _STANDS_FOR:
        told = folder.get(_STANDS_FOR[command])
    if told is None and erred is None:
        return Unknown(Reason.NOT_ASKED, "the snapshot does not hold it", what)
    try:
        stdout = _text(told) if told else ""
        first, _, rest = (_text(erred) if erred else "").partition("\n")
    except Damaged as error:
        return Unknown(Reason.MALFORMED, str(error), what)
    code = _EXIT.fullmatch(first.strip())
    if told is None and erred is not None and code is None:
        return _unknown(first, " ".join(rest.split())[:300], what)
    stderr = rest if code else f"{first}\n{rest}".strip()
    return parsed(parse, Output(stdout, stderr, int(code[1]) if code else 0), what)


def _text(file: File) -> str:
    return file.text().decode(errors="replace")


# Writing


def write(folder: Path, probed: Probed) -> None:
    """Stores what came of looking into a node. Raises OSError."""
    place = folder / FOLDER / probed.node
    place.mkdir(parents=True, exist_ok=True)
    for command, answer in probed.outputs.items():
        _write(place, command, answer)
    (place / "probe.yaml").write_text(_yaml(probed), encoding="utf-8")


def _write(place: Path, command: str, answer: Output | Unknown) -> None:
    error = place / f"{command}.err"
    if isinstance(answer, Unknown):
        error.write_text(f"{answer.reason.value}\n{masked_text(answer.message)}\n", encoding="utf-8")
        return
    text = _without_responses(answer.stdout) if command == KUBELET else masked_text(answer.stdout)
    if text or not answer.code:
        (place / f"{command}{_SUFFIXES.get(command, '.txt')}").write_text(
            text, encoding="utf-8", errors="replace"
        )
    error.unlink(missing_ok=True)
    if answer.code or answer.stderr:
        said = f"exit {answer.code}\n{masked_text(answer.stderr)}"
        error.write_text(said, encoding="utf-8", errors="replace")


def _without_responses(text: str) -> str:
    """The kubelet's checkpoint without what plugins answered: it can hold environments of containers."""
    return re.sub(r'("AllocResp"\s*:\s*")[^"]*"', r'\1"', text)


def _yaml(probed: Probed) -> str:
    import yaml

    failed = probed.failed
    tree = msgspec.to_builtins(
        _ProbeFile(
            at=probed.at.replace(microsecond=0),
            place=probed.place,
            seconds=round(probed.seconds, 2),
            commands=dict(probed.lines),
            failed=failed.reason.value if failed else "",
            message=masked_text(failed.message) if failed else "",
        )
    )
    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120))


def of(files: Iterable[File]) -> RecordedNodes:
    """The part of a record's files that is about the insides of nodes."""
    return RecordedNodes(tuple(file for file in files if file.path.startswith(f"{FOLDER}/")))
