"""All trials, many at once, and what came of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from gpuctl.audit.judge import Verdict
from gpuctl.cluster.consent import DryRuns
from gpuctl.facts.state import Unknown
from tests.cluster.bed import Bed

from .asked import Asked
from .oracle import Effect, Oracle, items
from .scene import scene
from .trial import Cluster, Ran, Trial, Uncaught, run, short_pages, tried, without
from .troubles import TROUBLES, Hidden, Trouble, may_be_absent

AT_ONCE, WAITING_AT_ONCE = 8, 4  # trials: those that work, and those whose time is measured


@dataclass(frozen=True)
class Result:
    """What came of one trial: in a word, and what is wrong with it."""

    trial: Trial
    outcome: str
    reasons: tuple[str, ...]
    objections: tuple[str, ...]


@dataclass
class Matrix:
    """A cluster that is asked, and what it is asked for in a run without faults."""

    cluster: Cluster
    asked: tuple[Asked, ...]
    clean: Ran
    _absent: dict[tuple[Asked, Hidden], Ran] = field(default_factory=dict)

    @staticmethod
    def on(cluster: Cluster, but: Collection[Asked] = ()) -> Matrix:
        """The answers of a first run are kept for all others. `but`: what need not be tried again."""
        with short_pages():
            run(cluster)
            clean = run(cluster)
        asked = {Asked.of(each) for each in clean.requests}
        return Matrix(cluster, tuple(sorted(asked.difference(but))), clean)

    @property
    def oracle(self) -> Oracle:
        return Oracle(self.clean, self._absent)

    def trials(self, troubles: Iterable[Trouble] = TROUBLES) -> list[Trial]:
        """Each request with each fault that it can meet."""
        return [
            Trial(asked, each)
            for each in troubles
            for asked in self.asked
            if each.fits(asked) and not (self.cluster.lacks(asked) and each.is_vain_without_a_thing)
        ]

    def results(
        self, trials: Sequence[Trial], told: Callable[[Result], None] = lambda _: None
    ) -> list[Result]:
        """Runs them, those whose time is measured at last."""
        found: list[Result] = []
        self._learn(trials)
        with short_pages(), Uncaught() as uncaught:
            for lasting, at_once in ((False, AT_ONCE), (True, WAITING_AT_ONCE)):
                some = [each for each in trials if each.trouble.lasts is lasting]
                with ThreadPoolExecutor(at_once) as pool:
                    for result in pool.map(self._result, some):
                        found.append(result)
                        told(result)
        assert not uncaught.said, uncaught.said[0]
        return found

    def _learn(self, trials: Sequence[Trial]) -> None:
        """What would be so without the things that these trials are about."""
        wanted = {
            (each.asked, each.trouble.hides)
            for each in trials
            if may_be_absent(each.asked) and not self.cluster.lacks(each.asked)
        }
        new = [each for each in sorted(wanted) if each not in self._absent]
        with short_pages(), ThreadPoolExecutor(AT_ONCE) as pool:
            ran = pool.map(lambda each: without(each[0], each[1], self.cluster), new)
            self._absent.update(zip(new, ran, strict=True))

    def _result(self, trial: Trial) -> Result:
        ran = tried(trial, self.cluster)
        if trial.trouble.lasts and not ran.hits:  # a busy machine: it did not come so far
            ran = tried(trial, self.cluster)
        objections = tuple(self.oracle.objections(trial, ran))
        if ran.report is None:
            return Result(trial, "raised", (), objections)
        effect = self.oracle.effect(trial, ran)
        return Result(trial, self._outcome(ran, effect), _reasons(trial, effect), objections)

    def _outcome(self, ran: Ran, effect: Effect) -> str:
        before = items(self.clean)
        changed = {item.verdict for name, item in items(ran).items() if item.verdict != before[name].verdict}
        for verdict in (Verdict.UNKNOWN, Verdict.NOT_PROVEN, Verdict.FAIL):
            if verdict in changed:
                return verdict.value.replace("-", " ")
        return "told" if effect.touched else "not felt"


def _reasons(trial: Trial, effect: Effect) -> tuple[str, ...]:
    concerned = [gaps for read, gaps in effect.gaps.items() if trial.asked.concerns(read)]
    return tuple({gap.reason for gaps in concerned for gap in gaps if isinstance(gap, Unknown)})


@contextmanager
def matrices(bed: Bed) -> Iterator[tuple[Matrix, ...]]:
    """Of a run that tries creations, and of one that looks at certificates instead."""
    with scene(bed):
        cluster = Cluster(bed.kubeconfig)
        first = Matrix.on(cluster)
        yield first, Matrix.on(replace(cluster, dry_runs=DryRuns.NONE), but=first.asked)
