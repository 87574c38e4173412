"""What every verb that changes a cluster takes and opens: who acts, why, by which policy, for how long."""

from __future__ import annotations

import getpass
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuctl.cli.access import with_access
from gpuctl.cli.flags import Flags, together, with_flags
from gpuctl.cli.looking import with_probing
from gpuctl.cli.monitoring import with_alerts
from gpuctl.facts.home import HOME

if TYPE_CHECKING:
    from gpuctl.audit.policy import Policy
    from gpuctl.audit.report import Source
    from gpuctl.cli.looking import Looking
    from gpuctl.cli.monitoring import Monitoring
    from gpuctl.cluster.connection import Access, Connection
    from gpuctl.cluster.discovery import Remembered
    from gpuctl.cluster.probe import Probing
    from gpuctl.facts.fact import Argument, Fact
    from gpuctl.facts.gather import Facts
    from gpuctl.runbook.conduct import Crew
    from gpuctl.runbook.look import Look
    from gpuctl.runbook.planning import Task
    from gpuctl.runbook.runbook import Runbook

_PANEL = "Run"
_LOOK_SECONDS = 90.0  # one look: the longest is one into a node, twice
_FLAGS: Flags = {
    "policy": (
        Annotated[
            str | None,
            typer.Option(
                "--policy",
                help="A policy file, or strict or default; else ./gpuctl.yaml.",
                rich_help_panel=_PANEL,
            ),
        ],
        None,
    ),
    "state_namespace": (
        Annotated[
            str,
            typer.Option(
                "--state-namespace", help="Where locks and journals are kept.", rich_help_panel=_PANEL
            ),
        ],
        HOME,
    ),
    "reason": (
        Annotated[str, typer.Option("--reason", help="Why this is done; journaled.", rich_help_panel=_PANEL)],
        "",
    ),
    "ticket": (
        Annotated[
            str, typer.Option("--ticket", help="The ticket it belongs to; journaled.", rich_help_panel=_PANEL)
        ],
        "",
    ),
    "timeout": (
        Annotated[
            str, typer.Option("--timeout", help="Time for the whole of a run.", rich_help_panel=_PANEL)
        ],
        "2h",
    ),
}


@dataclass(frozen=True)
class Acting:
    """What a person said of a run. `timeout` in seconds."""

    policy: Policy
    state_namespace: str
    reason: str
    ticket: str
    timeout: float


def _acting(*, policy: str | None, state_namespace: str, reason: str, ticket: str, timeout: str) -> Acting:
    from gpuctl.cli.duration import seconds
    from gpuctl.cli.policies import load_policy

    return Acting(load_policy(policy), state_namespace, reason, ticket, seconds(timeout))


_with_acting = with_flags("acting", _FLAGS, _acting)


@dataclass(frozen=True, slots=True)
class Means:
    """All that a site is opened by: as whom, how nodes are looked into, what was said of the work, and which
    monitoring may be asked."""

    access: Access
    looking: Looking
    acting: Acting
    monitoring: Monitoring

    def open(self) -> Site:
        """Connects. Raises Stop."""
        return open_site(self.access, self.acting, self.looking, self.monitoring)


with_means = together("means", (with_alerts, _with_acting, with_probing, with_access), Means)
"""Gives a verb the flags of all that change a cluster, and hands them to it as its parameter `means`."""


@dataclass(frozen=True)
class Site:
    """An open connection to the cluster that is worked on, and what was said of the work. `remembered` says
    where to read, and is no fact: each look reads all that it judges by anew."""

    connection: Connection
    source: Source
    user: str
    acting: Acting
    probing: Probing
    monitoring: Monitoring
    remembered: Remembered

    def looks(self, *, quiet: bool = False) -> Callable[[Mapping[Argument[Any], Any]], Look]:
        """Eyes for facts with these arguments. `quiet`: looks into nodes are not announced."""
        probing = replace(self.probing, tell=lambda _: None) if quiet else self.probing

        def look_with(arguments: Mapping[Argument[Any], Any]) -> Look:
            return lambda facts: _look(self, probing, facts, arguments)

        return look_with

    def task(self, book: Runbook, target: str, options: Mapping[str, Any]) -> Task:
        """What a run is about."""
        from gpuctl.runbook.planning import Task

        return Task(book, target, options, self.acting.policy, self.acting.state_namespace)

    def crew(self, stop: Event) -> Crew:
        """This process, as one that works on a run."""
        from gpuctl.cli.border import warn
        from gpuctl.cli.history import keep, note
        from gpuctl.cluster.writer import LiveWriter
        from gpuctl.runbook.conduct import Crew

        return Crew(
            writer=LiveWriter(self.connection),
            look=self.looks(quiet=True),
            user=self.user,
            host=who_here(),
            session=secrets.token_hex(4),
            policy=self.acting.policy,
            namespace=self.acting.state_namespace,
            stop=stop,
            tell=_tell,
            keep=lambda run: keep(run, warn),
            note=lambda line: note(line, warn),
            limit=self.acting.timeout,
            reason=self.acting.reason,
            ticket=self.acting.ticket,
        )


def _tell(text: str) -> None:
    """A line on how a run goes. A terminal that is gone is no reason to leave it in the middle."""
    from gpuctl.report.plain import plain

    with suppress(OSError):
        print(plain(text), file=sys.stderr, flush=True)


def who_here() -> str:
    """`ana@bastion-1`: by whom and where this process was started."""
    name = "unknown"
    with suppress(OSError, KeyError, ImportError):
        name = getpass.getuser()
    return f"{name}@{socket.gethostname()}"


def _look(
    site: Site, probing: Probing, facts: Iterable[Fact[Any]], arguments: Mapping[Argument[Any], Any]
) -> Facts:
    """One look at the cluster as it is now, with a reader of its own."""
    from gpuctl.cluster.consent import Consent, DryRuns
    from gpuctl.cluster.live import LiveReader
    from gpuctl.facts.gather import gather

    consent = site.monitoring.added_to(Consent(dry_run=DryRuns.FLAVOR))
    reader = LiveReader(
        site.connection, _LOOK_SECONDS, probing=probing, consent=consent, remembered=site.remembered
    )
    try:
        return gather(facts, reader, arguments)
    finally:
        reader.close()


def open_site(access: Access, acting: Acting, looking: Looking, monitoring: Monitoring) -> Site:
    """Connects, and learns which cluster this is and who asks. Raises Stop."""
    from gpuctl.cli.border import INCOMPLETE, Stop
    from gpuctl.cluster.connection import CannotConnect, connect
    from gpuctl.cluster.deadline import Deadline
    from gpuctl.cluster.discovery import Remembered
    from gpuctl.cluster.live import LiveReader
    from gpuctl.cluster.reviews import Reviews

    try:
        connection = connect(access)
    except CannotConnect as error:
        raise Stop(str(error), INCOMPLETE) from error
    reader = LiveReader(connection, _LOOK_SECONDS)
    source = reader.source()
    if not source.cluster_uid:
        why = f"that is the uid of the namespace kube-system: {reader.cluster_uid()}"
        raise Stop(f"{connection.name}: it can't be told which cluster this is: {why}", INCOMPLETE)
    user = Reviews(connection, Deadline.after(_LOOK_SECONDS)).user()
    return Site(connection, source, user, acting, looking.probing, monitoring, Remembered())
