"""Of whom the verbs about permissions speak, checks or a runbook: one way for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli import complete
from gpuctl.cli.asking import NeedsExecOption, NeedsHttpOption
from gpuctl.cli.consent import NeedsSecretOption
from gpuctl.cli.flags import Flags, with_flags

if TYPE_CHECKING:
    from gpuctl.audit.access import Sought
    from gpuctl.audit.catalogue import Broken
    from gpuctl.audit.permissions import Grant
    from gpuctl.runbook.permissions import Permissions
    from gpuctl.runbook.runbook import Runbook

ALL_CHECKS = "check"
_DISABLE_EVICTION = "--disable-eviction"
_FLAGS: Flags = {
    "for_": (
        Annotated[
            str,
            typer.Option(
                "--for",
                metavar="check|CHECK|RUNBOOK",
                help="All checks, one, or a runbook.",
                autocompletion=complete.checks_and_runbooks,
            ),
        ],
        ALL_CHECKS,
    ),
    "secret": (NeedsSecretOption, False),
    "vllm_http": (NeedsHttpOption, False),
    "vllm_exec": (NeedsExecOption, False),
    "disable_eviction": (
        Annotated[
            bool,
            typer.Option(_DISABLE_EVICTION, help="Also what that flag of a runbook takes: deleting pods."),
        ],
        False,
    ),
}


@dataclass(frozen=True)
class OfChecks:
    """What checks need. `only`: the one that is asked about, empty for all."""

    only: str
    grants: tuple[Grant, ...]
    broken: tuple[Broken, ...]

    def sought(self, namespace: str) -> Iterator[Sought]:
        """Each permission, everywhere or within a tenant's namespace."""
        from gpuctl.audit.access import Sought

        return (Sought(each, namespace) for each in self.grants)


@dataclass(frozen=True)
class OfARunbook:
    """What a runbook takes."""

    book: Runbook
    permissions: Permissions

    @property
    def changes_nodes(self) -> bool:
        """Whether it writes to nodes."""
        return any(rule.resource == "nodes" for rule in self.book.rules)

    def sought(self, state: str) -> Iterator[Sought]:
        """Each permission, where it is needed. `state`: the namespace of locks and journals."""
        from gpuctl.audit.access import Sought

        for namespace, grants in self.permissions.places(state):
            yield from (Sought(self._named(each), namespace) for each in grants)

    def _named(self, grant: Grant) -> Grant:
        """Its guards and steps, named as the assertions of checks are."""
        assertions, more = (
            tuple(f"{self.book.id}/{each}" for each in names) for names in (grant.assertions, grant.more)
        )
        return replace(grant, assertions=assertions, more=more)


@dataclass(frozen=True)
class Needs:
    """What a person said of whom they ask about."""

    for_: str
    secret: bool
    vllm_http: bool
    vllm_exec: bool
    disable_eviction: bool

    def found(self, namespace: str | None) -> OfChecks | OfARunbook:
        """The permissions of those. Raises Stop for what does not exist, and for flags of others."""
        from gpuctl.runbook.catalogue import BOOKS

        return self._of_a_runbook(namespace) if self.for_ in BOOKS else self._of_checks()

    def _of_checks(self) -> OfChecks:
        from gpuctl.audit.permissions import Purpose, grants
        from gpuctl.cli.asking import not_asked
        from gpuctl.cli.border import Stop
        from gpuctl.cli.selection import selected

        if self.disable_eviction:
            raise Stop(f"{_DISABLE_EVICTION} is a flag of runbooks: name one by --for")
        only = "" if self.for_ == ALL_CHECKS else self.for_
        chosen = selected([only] if only else [])
        without = not_asked(http=self.vllm_http, exec_=self.vllm_exec)
        needed = grants(chosen.checks, without)
        return OfChecks(
            only,
            tuple(each for each in needed if self.secret or each.purpose is not Purpose.SECRET),
            chosen.broken,
        )

    def _of_a_runbook(self, namespace: str | None) -> OfARunbook:
        from gpuctl.cli.border import Stop
        from gpuctl.runbook.catalogue import runbook
        from gpuctl.runbook.permissions import permissions_of

        book = runbook(self.for_)
        flags = [_DISABLE_EVICTION] if self.disable_eviction else []
        of_checks = {
            "--read-webhook-secret": self.secret,
            "--vllm-http": self.vllm_http,
            "--vllm-exec": self.vllm_exec,
            "--namespace": bool(namespace),
        }
        for flag in (name for name, said in of_checks.items() if said):
            raise Stop(f"{flag} is for checks, and {book.id} is a runbook")
        for flag in (each for each in flags if each not in book.rules_with):
            raise Stop(f"the runbook {book.id} has no flag {flag}")
        return OfARunbook(book, permissions_of(book, flags))


with_needs = with_flags("needs", _FLAGS, Needs)
"""Gives a verb the flags of whom it speaks, and hands it its parameter `needs`."""
