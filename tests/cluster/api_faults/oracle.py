"""What a run with a fault may say, held against a clean one.

Which assertion rests on which read follows from the declared facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.audit.assertion import Assertion
from gpuctl.audit.check import Check
from gpuctl.audit.judge import Verdict
from gpuctl.audit.outcome import Exit
from gpuctl.audit.report import AssertionItem
from gpuctl.facts.fact import Fact, Maybe, Read, graph
from gpuctl.facts.kinds import Answer, Attempt, Ref, View
from gpuctl.facts.state import Each, Inapplicable, Known, Reason, State, Unknown
from gpuctl.facts.tls import Handshake

from .asked import Asked
from .trial import CHECKS, Ran, Trial
from .troubles import Hidden

MARGIN = 10.0  # seconds: the machine may be busy
Item = tuple[str, str]  # check, assertion


def items(ran: Ran) -> dict[Item, AssertionItem]:
    """The judgements of a run."""
    assert ran.report
    return {(check.id, each.id): each for check in ran.report.checks for each in check.assertions}


@dataclass(frozen=True)
class Effect:
    """What a fault did to the reads. `gaps`: what is not known of them; `whole`: nothing is; `other`: they
    say something else now, or lack something without a word."""

    gaps: Mapping[Read[Any], tuple[Unknown | Inapplicable, ...]]
    whole: frozenset[Read[Any]]
    other: frozenset[Read[Any]]

    @property
    def touched(self) -> frozenset[Read[Any]]:
        return frozenset(self.gaps) | self.other


@dataclass(frozen=True)
class Oracle:
    """What is right, told from a clean run, and from runs in which things were absent: what is judged
    otherwise where a thing is absent rests on it."""

    clean: Ran
    absent: Mapping[tuple[Asked, Hidden], Ran]

    def effect(self, trial: Trial, ran: Ran) -> Effect:
        """What differs from the clean run."""
        return _effect(self.clean, ran, trial.asked)

    def depending(self, trial: Trial, effect: Effect) -> Iterator[Item]:
        """The assertions that come out otherwise where what was not read does not exist."""
        ran = self.absent.get((trial.asked, trial.trouble.hides))
        before, now = _seen(self.clean), _seen(ran) if ran else {}
        for name in now:
            touched = any(trial.asked.concerns(read) for read in LOOKS[name] if read in effect.touched)
            if touched and now[name] != before[name]:
                yield name

    def objections(self, trial: Trial, ran: Ran) -> list[str]:
        """Everything that is wrong with a run."""
        if ran.mistake or ran.report is None:
            return [f"it raised: {ran.mistake}"]
        effect = self.effect(trial, ran)
        rules = (
            self._in_time,
            self._met,
            self._no_mistake,
            self._no_pass,
            self._told,
            self._code,
            self._rest,
        )
        return [each for rule in rules for each in rule(trial, ran, effect)]

    def _in_time(self, trial: Trial, ran: Ran, _: Effect) -> Iterator[str]:
        if ran.seconds > trial.trouble.deadline + MARGIN:
            yield f"it took {ran.seconds:.1f} s"

    def _met(self, trial: Trial, ran: Ran, effect: Effect) -> Iterator[str]:
        """A fault that lasts leaves a mark, unless nothing rests on the answer, or there was another way."""
        way_round = any(Asked.of(each).is_another_version_of(trial.asked) for each in ran.requests)
        if not ran.hits:
            yield "the request was not made"
        elif not (effect.touched or trial.trouble.heals or trial.asked.is_beside or way_round):
            yield "nobody took notice"

    def _no_mistake(self, _: Trial, ran: Ran, __: Effect) -> Iterator[str]:
        """A traceback in the shape of a reason."""
        for item in items(ran).values():
            for gap in item.unknown:
                if gap.reason == Reason.INTERNAL:
                    yield f"a mistake in {item.id}: {gap.object}: {gap.message}"

    def _no_pass(self, trial: Trial, ran: Ran, effect: Effect) -> Iterator[str]:
        """Nothing passes on what was not read, or not read as it is."""
        before = items(self.clean)
        depending = set(self.depending(trial, effect))
        ways_round = {Asked.of(each) for each in ran.requests} - {
            Asked.of(each) for each in self.clean.requests
        }
        for name, item in items(ran).items():
            if item.verdict != Verdict.PASS:
                continue
            if name in depending and not any(
                way.concerns(read) for way in ways_round for read in RESTS[name]
            ):
                yield f"{'/'.join(name)} passed, and would not be the same without {trial.asked}"
            missing = [read for read in RESTS[name] if read in effect.touched]
            for read in missing:
                if read in effect.whole or read in effect.other:
                    yield f"{'/'.join(name)} passed without {read.name}"
            if missing and item.looked < before[name].looked:
                yield f"{'/'.join(name)} passed and looked at {item.looked} of {before[name].looked}"

    def _told(self, trial: Trial, ran: Ran, effect: Effect) -> Iterator[str]:
        """Each gap is in the report, with its reason and its object; and the reason fits the fault."""
        assert ran.report
        told = {
            (gap.reason, f"{gap.resource} {gap.namespace} {gap.name} {gap.message}")
            for check in ran.report.checks
            for gap in check.coverage.missing
        }
        for read, gaps in effect.gaps.items():
            for gap in gaps:
                if isinstance(gap, Inapplicable):
                    yield f"{read.name} is taken for not applicable: {gap.why}"
                    continue
                names = (gap.what or read.name, *trial.asked.words, *_keys(ran.states[read], gap))
                texts = [text for reason, text in told if reason == gap.reason]
                if not any(name in text for name in names for text in texts):
                    yield f"not told: {gap.reason} of {read.name}"
                if trial.asked.concerns(read) and gap.reason not in _fitting(trial):
                    yield f"{read.name} is {gap.reason}: {gap.message}"

    def _code(self, _: Trial, ran: Ran, __: Effect) -> Iterator[str]:
        """What is unknown is never green."""
        assert ran.report
        unknown = [name for name, item in items(ran).items() if item.verdict == Verdict.UNKNOWN]
        code = ran.report.outcome.exit_code
        if unknown and code not in (Exit.FINDINGS, Exit.INCOMPLETE):
            yield f"exit code {code} though {unknown[0]} is unknown"

    def _rest(self, trial: Trial, ran: Ran, effect: Effect) -> Iterator[str]:
        """What rests on other reads is judged as ever."""
        before = items(self.clean)
        for name, item in items(ran).items():
            same = (item.verdict, item.looked) == (before[name].verdict, before[name].looked)
            if not same and not any(read in effect.touched for read in LOOKS[name]):
                yield f"{'/'.join(name)} was {before[name].verdict} and is {item.verdict} for no reason"


def _fitting(trial: Trial) -> frozenset[str]:
    """The reasons that a fault may have in the report: of what a failing discovery leaves open, the answer
    that it was to explain."""
    explains = {"not-served"} if trial.asked.kind == "API version" else set()
    return trial.trouble.reasons | explains


def _effect(clean: Ran, ran: Ran, asked: Asked | None) -> Effect:
    gaps: dict[Read[Any], tuple[Unknown | Inapplicable, ...]] = {}
    other: set[Read[Any]] = set()
    for read, state in clean.states.items():
        now = ran.states[read]
        new = tuple(gap for gap in _gaps(now) if gap not in _gaps(state))
        if new:
            gaps[read] = new
        elif (asked is None or asked.concerns(read)) and _content(now) != _content(state):
            other.add(read)
    whole = frozenset(read for read in gaps if not isinstance(ran.states[read], Known))
    return Effect(gaps, whole, frozenset(other))


def _gaps(state: State[Any]) -> tuple[Unknown | Inapplicable, ...]:
    if not isinstance(state, Known):
        return (state,)
    return tuple(state.value.gaps()) if isinstance(state.value, Each) else ()


def _asked(ran: Ran) -> set[Asked]:
    return {Asked.of(each) for each in ran.requests}


def _keys(state: State[Any], gap: Unknown) -> Iterator[str]:
    """Under which names a gap stands."""
    if isinstance(state, Known) and isinstance(state.value, Each):
        for key, member in state.value.entries.items():
            if member == gap:
                yield _name(key)


def _name(key: object) -> str:
    if isinstance(key, Attempt):
        return key.kind.resource
    return key.name if isinstance(key, Ref) else str(key)


def _content(state: State[Any]) -> Any:
    """What is to be the same in each run: of what carries a time, the rest."""
    if not isinstance(state, Known):
        return state
    if not isinstance(state.value, Each):
        return state.value
    return {key: _lasting(member) for key, member in state.value.known()}


def _lasting(member: Any) -> Any:
    if isinstance(member, View):
        return member.ref  # objects change by themselves, such as a node's conditions
    if isinstance(member, Answer):
        return member.status, member.body.get("kind"), member.body.get("message")
    if isinstance(member, Handshake):
        return member.chain, member.error
    return member


def _depends(check: Check, assertion: Assertion, read: Read[Any]) -> bool:
    depending = check.needed_for.get(read)
    return depending is None or assertion in depending


def _seen(ran: Ran) -> dict[Item, tuple[str, int, int]]:
    return {name: (item.verdict, item.looked, len(item.findings)) for name, item in items(ran).items()}


def _reads(facts: Iterable[Fact[Any]]) -> tuple[Read[Any], ...]:
    return tuple(fact for fact in facts if isinstance(fact, Read))


def _without_maybe(facts: Iterable[Fact[Any]], seen: set[Fact[Any]]) -> Iterator[Fact[Any]]:
    """The facts without which these are not known."""
    for fact in facts:
        if fact not in seen and not isinstance(fact, Maybe):
            seen.add(fact)
            yield fact
            yield from _without_maybe(fact.needs, seen)


# The reads that an assertion looks at, and those of them without which it can't be judged.
LOOKS: Mapping[Item, tuple[Read[Any], ...]] = {
    (check.id, each.id): _reads(graph(each.needs)) for check in CHECKS.checks for each in check.assertions
}
RESTS: Mapping[Item, tuple[Read[Any], ...]] = {
    (check.id, each.id): tuple(
        read for read in _reads(_without_maybe(each.needs, set())) if _depends(check, each, read)
    )
    for check in CHECKS.checks
    for each in check.assertions
}
