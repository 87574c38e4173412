"""Looks into nodes: by exec into pods that have nvidia-smi, else by debug pods, if the person agrees.

Many nodes at once, each within its own time: a node that hangs costs itself alone.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from gpuctl.cluster.connection import Connection
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.cluster.debug_pod import HOST, RULES, DebugPods, Recipe
from gpuctl.cluster.execution import Ran, execute
from gpuctl.cluster.recorded_commands import Probed
from gpuctl.cluster.reviews import Place as Within
from gpuctl.cluster.reviews import Reviews
from gpuctl.cluster.script import ARGUMENTS, KUBELET, hung, place_of, script, taken_apart
from gpuctl.cluster.sink import Sink
from gpuctl.facts.home import HOME
from gpuctl.facts.kinds import Rule
from gpuctl.facts.nodes import Output, Place, Target, parsed
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown
from gpuctl.nvidia.output import Trouble, classified

AT_ONCE: Final = 100
ANSWER_SECONDS: Final = 60.0  # for which a question waits, and never for more than half of what is left
PAUSE: Final = 0.5  # seconds before a way that broke is tried again
_PASSING: Final = frozenset({Reason.SERVER_ERROR, Reason.UNREACHABLE})
LISTING: Final = "nvidia-smi-L"
EXEC: Final = tuple(Rule("", "pods/exec", verb, namespaced=True) for verb in ("create", "get"))
MODES: Final = ("auto", "exec", "debug", "none")
_NO_SHELL: Final = ("executable file not found", "no such file or directory", "not found")

Wanted = Sequence[tuple[str, Callable[[Output], Any]]]
Outputs = Mapping[str, Output | Unknown]


@dataclass(frozen=True)
class Probing:
    """What the person agreed to. `tell` says a line; `ask` asks a question, so many seconds long; it is
    None where nobody can answer."""

    mode: str = "none"
    seconds: float = 20.0
    namespace: str = HOME
    image: str = "busybox:1.37"
    tell: Callable[[str], None] = field(default=lambda _: None, compare=False)
    ask: Callable[[str, float], bool] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class _Look:
    """What came of one way into a node."""

    place: str
    outputs: Outputs
    lines: Mapping[str, str] = field(default_factory=dict)
    at: datetime | None = None
    seconds: float = 0.0

    @property
    def trouble(self) -> Trouble | None:
        """Why another way may tell more, or None."""
        listed = self.outputs.get(LISTING)
        if listed is None or isinstance(listed, Unknown):
            return Trouble.NOT_FOUND
        text = f"{listed.stdout}\n{listed.stderr}"
        if text.lstrip().startswith("GPU "):
            return None
        found = next((found for line in text.split("\n") if (found := classified(line))), None)
        return found if found and found.of_the_place else None


class Prober:
    """Looks into nodes through a connection, all of it over by the deadline."""

    def __init__(
        self, connection: Connection, deadline: Deadline, sink: Sink, reviews: Reviews, probing: Probing
    ) -> None:
        self._connection = connection
        self._deadline = deadline
        self._sink = sink
        self._reviews = reviews
        self._probing = probing
        recipe = Recipe(probing.namespace, probing.image, probing.seconds, secrets.token_hex(6))
        self._pods = DebugPods(connection, recipe)
        self._agreed: bool | None = None

    def close(self) -> None:
        """Deletes debug pods that are still there."""
        self._pods.close()

    def commands(self, wanted: Wanted, targets: Collection[Target]) -> Sequence[State[Each[str, Any]]]:
        """What each command printed on each node, parsed."""
        if self._probing.mode == "none" and targets:
            gap = Unknown(Reason.NOT_ASKED, "nodes are not looked into with --probe none", "nodes")
            return [gap] * len(wanted)
        looks = self._looked(targets, [name for name, _ in wanted])
        return [
            Known(Each({node: _answer(look, name, parse, node) for node, look in looks.items()}))
            for name, parse in wanted
        ]

    # In which order

    def _looked(self, targets: Collection[Target], names: Sequence[str]) -> dict[str, _Look | Unknown]:
        looks: dict[str, _Look | Unknown] = {
            each.node: Unknown(Reason.NOT_ASKED, each.why_not, each.node) for each in targets if each.why_not
        }
        trying = [each for each in targets if not each.why_not]
        by_exec = [each for each in trying if each.places and self._probing.mode in ("auto", "exec")]
        rest = [each for each in trying if each not in by_exec]
        lack = self._lack_of_exec(by_exec)
        self._announce(by_exec if not lack else [], rest, looks)
        if lack is not None:
            looks |= {each.node: Unknown(lack.reason, lack.message, each.node) for each in by_exec}
            rest, by_exec = [*rest, *by_exec], []
        looks |= self._wave(by_exec, names, self._by_exec)
        rest += [each for each in by_exec if _wants_another(looks[each.node])]
        looks |= self._by_pods_if_agreed(rest, names, looks)
        for node, look in looks.items():
            self._record(node, look)
        return {each.node: looks[each.node] for each in targets}

    def _lack_of_exec(self, targets: Sequence[Target]) -> Unknown | None:
        if not targets:
            return None
        namespaces = {place.namespace for target in targets for place in target.places}
        lacks = [self._reviews.lack(*EXEC, place=Within(namespace)) for namespace in sorted(namespaces)]
        return next((lack for lack in lacks if lack), None) if all(lacks) else None

    def _announce(
        self, by_exec: Sequence[Target], rest: Sequence[Target], looks: Mapping[str, _Look | Unknown]
    ) -> None:
        if not (by_exec or rest or looks):
            return
        ways = [f"{len(by_exec)} by exec"] if by_exec else []
        if rest and self._probing.mode == "debug":
            ways.append(f"{len(rest)} by debug pods in namespace {self._probing.namespace}")
        elif rest:
            ways.append(f"{len(rest)} have no pod with nvidia-smi")
        if looks:
            ways.append(f"{len(looks)} are not tried")
        user = self._reviews.user() or "this user"
        self._probing.tell(f"looking into nodes as {user}: {', '.join(ways) or 'none can be entered'}")

    def _by_pods_if_agreed(
        self, targets: Sequence[Target], names: Sequence[str], looks: Mapping[str, _Look | Unknown]
    ) -> dict[str, _Look | Unknown]:
        """Looks by debug pods; where nobody agreed to any, what is known stays, and why there is no more."""
        if not targets:
            return {}
        gap = self._lack_of_pods(len(targets))
        if gap is None:
            self._sweep()
            return self._wave(targets, names, self._by_pod)
        return {
            each.node: looks.get(each.node) or Unknown(gap.reason, gap.message, each.node) for each in targets
        }

    def _lack_of_pods(self, count: int) -> Unknown | None:
        if not self._agrees(count):
            return Unknown(Reason.NOT_ASKED, "no pod on it has nvidia-smi; --probe debug makes one")
        return self._reviews.lack(*RULES, place=Within(self._probing.namespace))

    def _agrees(self, count: int) -> bool:
        """Asked once in a run, and in words."""
        if self._probing.mode != "auto":
            return self._probing.mode == "debug"
        if self._agreed is None:
            ask = self._probing.ask
            nodes = "1 node has" if count == 1 else f"{count} nodes have"
            question = (
                f"{nodes} no pod with nvidia-smi. Make one privileged debug pod on each, in "
                f"namespace {self._probing.namespace}, and delete it when it has answered?"
            )
            self._agreed = ask is not None and ask(question, min(ANSWER_SECONDS, self._deadline.left / 2))
        return self._agreed

    def _sweep(self) -> None:
        try:
            left = self._pods.sweep()
        except NotKnown:
            return
        if left:
            self._probing.tell(f"deleted {left} debug pods that an earlier run had left")

    # Many nodes at once

    def _wave(
        self,
        targets: Sequence[Target],
        names: Sequence[str],
        way: Callable[[Target, Sequence[str], Deadline], _Look],
    ) -> dict[str, _Look | Unknown]:
        futures: dict[str, Future[_Look | Unknown]] = {each.node: Future() for each in targets}
        waiting = deque(targets)

        def look_into_those_that_wait() -> None:
            while self._deadline.left:
                try:
                    target = waiting.popleft()
                except IndexError:
                    return
                futures[target.node].set_result(self._one(target, names, way))

        for _ in range(min(AT_ONCE, len(futures))):
            in_background(look_into_those_that_wait)
        looks: dict[str, _Look | Unknown] = {}
        for node, future in futures.items():
            try:
                looks[node] = self._deadline.result(node, future)
            except NotKnown as gap:
                looks[node] = _unknown(gap)
        return looks

    def _one(
        self, target: Target, names: Sequence[str], way: Callable[[Target, Sequence[str], Deadline], _Look]
    ) -> _Look | Unknown:
        started, at = time.monotonic(), datetime.now(UTC)
        look: _Look | Unknown
        try:
            look = way(target, names, self._deadline.sooner(self._probing.seconds))
        except NotKnown as gap:
            look = _unknown(gap)
        except Exception as error:  # noqa: BLE001 - the border around one node: a bug here must not cost the others
            look = Unknown(Reason.INTERNAL, f"{type(error).__name__}: {error}", target.node)
        if isinstance(look, Unknown):
            return look
        return replace(look, at=at, seconds=time.monotonic() - started)

    def _record(self, node: str, look: _Look | Unknown) -> None:
        if isinstance(look, Unknown):
            self._sink.probed(Probed(node, datetime.now(UTC), 0.0, failed=look))
        else:
            at = look.at or datetime.now(UTC)
            self._sink.probed(Probed(node, at, look.seconds, look.place, look.outputs, look.lines))

    # One node

    def _by_exec(self, target: Target, names: Sequence[str], deadline: Deadline) -> _Look:
        """By the first place that answers well; else the best of what was said."""
        said: list[_Look] = []
        gaps: list[NotKnown] = []
        for place in target.places:
            try:
                look = self._in_place_again(place, names, deadline)
            except NotKnown as gap:
                gaps.append(gap)
                if not deadline.left:
                    break
                continue
            if look.trouble is None:
                return look
            said.append(look)
        best = min(said, key=lambda look: look.trouble is Trouble.NOT_FOUND, default=None)
        if best is not None and best.trouble is not Trouble.NOT_FOUND:
            return best
        raise (
            gaps[0] if gaps else NotKnown(Unknown(Reason.NO_POD, "no pod on it has nvidia-smi", target.node))
        )

    def _in_place_again(self, place: Place, names: Sequence[str], deadline: Deadline) -> _Look:
        """Once more where the way to the container broke: asking changes nothing."""
        try:
            return self._in_place(place, names, deadline)
        except NotKnown as gap:
            if _unknown(gap).reason not in _PASSING or deadline.left < PAUSE:
                raise
        time.sleep(PAUSE)
        return self._in_place(place, names, deadline)

    def _in_place(self, place: Place, names: Sequence[str], deadline: Deadline) -> _Look:
        mark = f"gpuctl-{secrets.token_hex(8)}"
        text = script(mark, names, _limit(self._probing.seconds))
        ran = execute(self._connection, place, ["sh", "-c", text], deadline)
        if ran.failure and any(words in ran.failure.message for words in _NO_SHELL):
            return self._without_shell(place, names, deadline)
        if not ran.stdout.strip() and ran.failure:
            raise NotKnown(ran.failure)
        return _taken(str(place), mark, ran, names)

    def _without_shell(self, place: Place, names: Sequence[str], deadline: Deadline) -> _Look:
        """One exec for each command, in one wave."""
        asked = [name for name in names if name in ARGUMENTS]

        def run(name: str) -> Output | Unknown:
            try:
                ran = execute(self._connection, place, ["nvidia-smi", *ARGUMENTS[name]], deadline)
            except NotKnown as gap:
                return _unknown(gap)
            return ran.failure or Output(ran.stdout, ran.stderr, ran.code)

        first = run(LISTING) if LISTING in asked else None
        if isinstance(first, Unknown) and any(words in first.message for words in _NO_SHELL):
            return _Look(str(place), {LISTING: first})
        rest = {name: in_background(partial(run, name)) for name in asked if name != LISTING}
        outputs: dict[str, Output | Unknown] = {} if first is None else {LISTING: first}
        outputs |= {name: deadline.result(name, future) for name, future in rest.items()}
        return _Look(str(place), outputs, {name: _line("nvidia-smi", name) for name in outputs})

    def _by_pod(self, target: Target, names: Sequence[str], deadline: Deadline) -> _Look:
        mark = f"gpuctl-{secrets.token_hex(8)}"
        text = script(mark, names, _limit(self._probing.seconds), host=HOST, merged=True)
        log = self._pods.output(target, text, deadline)
        return _taken("a debug pod", mark, Ran(log, ""), names)


def _limit(seconds: float) -> int:
    """Seconds for each command: less than for the whole, so that what was said before a hang arrives."""
    return max(1, int(seconds * 0.6))


def _taken(place: str, mark: str, ran: Ran, names: Sequence[str]) -> _Look:
    answers = taken_apart(ran.stdout, ran.stderr, mark)
    call = place_of(ran.stdout, mark)
    outputs: dict[str, Output | Unknown] = {}
    for name in names:
        answer = answers.get(name)
        if answer is None:
            outputs[name] = ran.failure or _not_run(name, answers)
        elif name == KUBELET and answer.code:
            outputs[name] = Unknown(Reason.NOT_ASKED, "this place does not show the kubelet's files", name)
        else:
            outputs[name] = answer
    place = place if call in ("", "nvidia-smi") else f"{place}, {call}"
    return _Look(place, outputs, {name: _line(call or "nvidia-smi", name) for name in outputs})


def _not_run(name: str, answers: Mapping[str, Output]) -> Unknown:
    if hung(answers):
        return Unknown(Reason.TIMEOUT, "not run, because nvidia-smi hung before", name)
    return Unknown(Reason.MALFORMED, "its answer is missing in what the node said", name)


def _line(call: str, name: str) -> str:
    return " ".join((call, *ARGUMENTS[name])) if name in ARGUMENTS else name


def _wants_another(look: _Look | Unknown) -> bool:
    """Whether another way in may tell more."""
    if isinstance(look, Unknown):
        return look.reason in (Reason.NO_POD, Reason.FORBIDDEN, Reason.SERVER_ERROR)
    return look.trouble is not None


def _answer(look: _Look | Unknown, name: str, parse: Callable[[Output], Any], node: str) -> State[Any]:
    if isinstance(look, Unknown):
        return look
    found = look.outputs.get(name)
    if found is None:
        return Unknown(Reason.NOT_ASKED, "not run there", node)
    if isinstance(found, Unknown):
        return Unknown(found.reason, found.message, node)
    return parsed(parse, found, f"{name} on {node}")


def _unknown(gap: NotKnown) -> Unknown:
    return gap.state if isinstance(gap.state, Unknown) else Unknown(Reason.NOT_SERVED, str(gap.state))
