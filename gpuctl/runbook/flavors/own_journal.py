"""What the run that acts has written into its journal: when its steps were begun, and what they learned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from gpuctl.facts.fact import Named, given
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.runbook.journal import ref_of
from gpuctl.runbook.records import Run, RunMap, run_of
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import SELF, Self

Which: TypeAlias = Callable[[Mapping[str, Any]], bool]


@given(SELF, STATE_NAMESPACE)
def journal_of_this_run(self: Self, namespace: str) -> Collection[Ref]:
    return (ref_of(self.run, namespace),)


OWN_JOURNAL: Final = Named(RunMap, journal_of_this_run)


def this_run(facts: Facts) -> Run:
    """What stands in the journal of the run that acts. Raises NotKnown."""
    (found,) = facts[OWN_JOURNAL]
    return run_of(found)


def first_begun(facts: Facts, step: Step) -> datetime | None:
    """When a step of this run was begun, also where the run was taken up again after it; None before that."""
    return _begun(this_run(facts), _is(step))


def begun(facts: Facts, step: Step) -> datetime | None:
    """The same, but None where the run was taken up again after it: then the time in between says nothing."""
    return _uninterrupted(this_run(facts), _is(step))


def begun_of_type(facts: Facts, step: type[Step]) -> datetime | None:
    """The same of the first step of a type."""
    return _uninterrupted(this_run(facts), lambda data: data.get("step") == step.__name__)


def _is(step: Step) -> Which:
    data = msgspec.json.decode(msgspec.json.encode(step))
    return lambda each: bool(each == data)


def _begun(run: Run, which: Which) -> datetime | None:
    return next((each.begun_at for each in run.steps if which(each.step)), None)


def _uninterrupted(run: Run, which: Which) -> datetime | None:
    since = _begun(run, which)
    resumed = [each.at for each in run.people if each.did == "resumed"]
    return None if since is None or any(each > since for each in resumed) else since
