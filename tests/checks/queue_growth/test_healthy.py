"""A busy cluster in which nothing is wrong: the check is silent, in either version of the API."""

from __future__ import annotations

import pytest

from gpuctl.audit.judge import Verdict
from tests.builders.queues import NEW, OLD, healthy
from tests.checks.queue_growth.judging import judged


@pytest.mark.parametrize("version", [OLD, NEW])
def test_silent(version: str) -> None:
    found = judged(healthy(version))
    assert found.findings == ()
    assert {
        each.assertion.id: each.reason for each in found.judgements if each.verdict is Verdict.UNKNOWN
    } == {}
