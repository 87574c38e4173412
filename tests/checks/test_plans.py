"""The commands that `gpuctl check` ends with: each can be copied, and is taken as it stands.

All findings of all checks that their tests make are looked at, so that none names a runbook without a target.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gpuctl.audit.catalogue import Catalogue
from gpuctl.audit.check import Check
from gpuctl.audit.policy import ChecksPolicy, Policy, VllmModePolicy
from gpuctl.audit.report import AuditReport, FindingItem, Source
from gpuctl.audit.run import Request, audit
from gpuctl.checks import flavor_impact, kueue_webhooks, mig_consistency, queue_growth, vllm_mode
from gpuctl.cli import books
from gpuctl.cli.output import rendered
from gpuctl.cli.planning import Wanted
from gpuctl.report import walk
from tests.builders import vllm as make
from tests.builders.queues import healthy as healthy_queues
from tests.checks import test_mig_runbooks as mig
from tests.checks.flavor_impact import test_findings as flavors
from tests.checks.judging import CHAT
from tests.checks.queue_growth import test_findings as queues
from tests.checks.queue_growth.test_manager import with_manager
from tests.checks.test_cures import held, stale
from tests.checks.test_cures import queues as limited
from tests.memory import A_MOMENT, MemoryReader

CHOICES = {"--config NAME"}  # what only a person can say
PLACEHOLDER = re.compile(r"(?:--[a-z-]+ )?\b[A-Z]{2,}\b")
NAMED_RUNBOOKS = {
    "RFI002": "kueue-restart",
    "RFI040": "flavor-drill",
    "CQG036": "kueue-restart",
    "CQG063": "queue-limit",
}


def reported(check: Check, reader: MemoryReader, policy: Policy | None = None) -> AuditReport:
    source = Source(
        kind="snapshot", name="memory", server_version="v1.36.3", cluster_uid="u-1", captured_at=A_MOMENT
    )
    return audit(Request(Catalogue((check,)), policy or Policy()), reader, lambda: source)


def of_engines(mode: str, *args: str) -> AuditReport:
    policy = Policy(checks=ChecksPolicy(vllm_mode=VllmModePolicy(mode=mode)))  # type: ignore[arg-type]
    items = [make.pod(CHAT, make.container(["acme/chat-7b", *args])), make.deployment(), make.node()]
    log = make.eager_log() if args else make.graphs_log()
    return reported(vllm_mode.CHECK, MemoryReader(items, written={(CHAT, "vllm"): log}), policy)


def reports() -> Iterator[AuditReport]:
    for flavor_case in flavors.CASES.values():
        for world in (healthy_queues(), with_manager(healthy_queues())):
            flavor_case.fault(world)
            yield reported(flavor_impact.CHECK, world.reader())
    for queue_case in queues.CASES.values():
        for world in (queue_case.base("v1beta2"), with_manager(queue_case.base("v1beta2"))):
            queue_case.fault(world)
            yield reported(queue_growth.CHECK, world.reader())
    yield reported(queue_growth.CHECK, limited({"nominalQuota": "2", "borrowingLimit": "0"}, 5).reader())
    yield reported(queue_growth.CHECK, held().reader())
    for cluster, *_ in mig.CASES.values():
        yield reported(mig_consistency.CHECK, mig.twice(cluster).reader)
    yield reported(kueue_webhooks.CHECK, stale().reader())
    yield of_engines("require-graphs", "--enforce-eager")
    yield of_engines("require-eager")


def printed(report: AuditReport) -> list[str]:
    """The commands at the end of the report."""
    lines = (line.strip() for line in rendered(report, "text").splitlines())
    return [line.removeprefix("runbook: ") for line in lines if line.startswith("runbook: ")]


def naming(report: AuditReport) -> list[FindingItem]:
    return [each for each in walk.findings(report) if each.runbook and each.severity != "info"]


@pytest.fixture(scope="module")
def made() -> list[AuditReport]:
    return [each for each in reports() if naming(each)]


def parsed(command: str) -> Wanted:
    """What `gpuctl plan` makes of a command; nothing is asked of any cluster."""
    program, verb, book, *arguments = shlex.split(command)
    assert (program, verb) == ("gpuctl", "plan")
    taken: list[Wanted] = []
    with suppress(SystemExit):
        books.run_book(verb, book, arguments, lambda asked: taken.append(asked.wanted), {})
    assert taken, f"it is not taken: {command}"
    return taken[0]


def test_each_command_is_taken_as_it_is_printed(made: list[AuditReport]) -> None:
    commands = {command for report in made for command in printed(report)}
    for command in sorted(commands):
        taken = parsed(command)
        assert taken.target or taken.book.default_target, command
        assert {*PLACEHOLDER.findall(command)} <= CHOICES, command


def test_each_finding_that_names_a_runbook_has_a_command_of_it(made: list[AuditReport]) -> None:
    for report in made:
        books = {command.split()[2] for command in printed(report)}
        for finding in naming(report):
            assert f"`gpuctl plan {finding.runbook}" in finding.remedy, (finding.code, finding.remedy)
            assert finding.runbook in books, (finding.code, books)


def test_those_that_had_none_have_one(made: list[AuditReport]) -> None:
    found = {(each.code, each.runbook) for report in made for each in naming(report)}
    assert {*NAMED_RUNBOOKS.items()} <= found


def test_where_no_manager_can_be_told_none_is_named() -> None:
    world = healthy_queues()
    flavors.CASES["deleted, and nothing refers to it"].fault(world)
    (finding,) = walk.findings(reported(flavor_impact.CHECK, world.reader()))
    assert (finding.code, finding.runbook) == ("RFI002", None)
    assert "gpuctl plan" not in finding.remedy
