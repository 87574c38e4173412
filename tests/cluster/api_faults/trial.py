"""One run of all checks through the fault proxy, in this process, and what it left known."""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from gpuctl.audit.catalogue import Catalogue, catalogue
from gpuctl.audit.policy import BUILT_IN
from gpuctl.audit.report import AuditReport
from gpuctl.audit.run import Observer, audit
from gpuctl.audit.run import Request as Wanted
from gpuctl.cluster import pages
from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.consent import Consent, DryRuns
from gpuctl.cluster.live import LiveReader
from gpuctl.cluster.probe import Probing
from gpuctl.facts.fact import Fact, Read
from gpuctl.facts.gather import Facts
from gpuctl.facts.state import State
from tests.cluster.bed.faultproxy import FaultProxy, Request

from .asked import Asked
from .frozen import Kept, frozen_proxy
from .troubles import PATIENT, Hidden, Trouble, absence

LATER = datetime.now(UTC) + timedelta(hours=1)
CHECKS: Catalogue = catalogue()
OBJECTS_IN_A_PAGE = 5  # so that a small cluster has lists of several pages


@dataclass(frozen=True)
class Ran:
    """What a run reported, what it knew of each read, and how it went."""

    report: AuditReport | None
    states: Mapping[Read[Any], State[Any]]
    seconds: float
    requests: tuple[Request, ...]
    hits: int = 0
    mistake: str = ""


@dataclass(frozen=True)
class Trial:
    """One request with one fault."""

    asked: Asked
    trouble: Trouble

    def __str__(self) -> str:
        return f"{self.trouble.name}: {self.asked}"


@contextmanager
def short_pages() -> Iterator[None]:
    """Every list in pages of a few objects."""
    before, pages.LIMIT = pages.LIMIT, OBJECTS_IN_A_PAGE
    try:
        yield
    finally:
        pages.LIMIT = before


@dataclass(frozen=True)
class Cluster:
    """A cluster as it was at one moment, and what a run may try there."""

    kubeconfig: Path
    kept: Kept = field(default_factory=Kept)
    dry_runs: DryRuns = DryRuns.ALL

    def lacks(self, asked: Asked) -> bool:
        """Whether it is known to have no such thing."""
        return any(
            (verb, path) == (asked.verb, asked.path) and answer.startswith(b"HTTP/1.1 404")
            for (verb, path, *_), answer in self.kept.answers.items()
        )


def run(cluster: Cluster) -> Ran:
    """A run that meets no fault."""
    with frozen_proxy(cluster.kubeconfig, cluster.kept) as proxy:
        return _run(proxy, PATIENT, cluster.dry_runs)


def without(asked: Asked, hidden: Hidden, cluster: Cluster) -> Ran:
    """A run in which what is asked for, or a part of it, does not exist."""
    return tried(Trial(asked, absence(asked, hidden)), cluster)


def tried(trial: Trial, cluster: Cluster) -> Ran:
    """A run in which one request meets one fault."""
    asked, trouble = trial.asked, trial.trouble
    with frozen_proxy(cluster.kubeconfig, cluster.kept) as proxy:
        fault = proxy.fault(
            trouble.answer,
            path=re.escape(asked.path),
            query="continue=" if asked.next_page else "^(?!.*continue=)",
            body=asked.review.encode() or None,
            verb=asked.verb,
            times=trouble.times,
        )
        ran = _run(proxy, trouble.deadline, cluster.dry_runs)
    return Ran(ran.report, ran.states, ran.seconds, ran.requests, fault.hits, ran.mistake)


def _run(proxy: FaultProxy, deadline: float, dry_runs: DryRuns) -> Ran:
    states: dict[Fact[Any], State[Any]] = {}

    def watch(_: Fact[Any], facts: Facts) -> None:
        states.update(facts.states)

    began = time.monotonic()
    report, mistake = None, ""
    try:
        reader = _Reader(
            connect(Access(kubeconfig=str(proxy.kubeconfig)), deadline),
            deadline,
            consent=Consent(dry_runs, webhook_secret=True),
            probing=Probing(mode="auto", seconds=deadline),
        )
        report = audit(Wanted(CHECKS, BUILT_IN["default"]), reader, reader.source, Observer(watch))
        reader.close()
    except Exception:
        mistake = traceback.format_exc()
    seconds = time.monotonic() - began
    reads = {fact: state for fact, state in states.items() if isinstance(fact, Read)}
    return Ran(report, reads, seconds, tuple(proxy.requests), mistake=mistake)


class _Reader(LiveReader):
    """Judges as of an hour from now: what has just been set up is settled then."""

    @property
    def now(self) -> datetime:
        return LATER


class Uncaught:
    """Collects what threads die of: it reaches no report, and must not happen."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __enter__(self) -> Self:
        self._before, threading.excepthook = threading.excepthook, self._note
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._before

    def _note(self, died: threading.ExceptHookArgs) -> None:
        self.said.append(
            "".join(traceback.format_exception(died.exc_type, died.exc_value, died.exc_traceback))
        )
