"""Codes are a contract: unique, never reused, and each explained in its check's README."""

from __future__ import annotations

import re

import pytest

from gpuctl.audit.catalogue import catalogue
from gpuctl.audit.check import Check

CHECKS = catalogue().checks
PREFIXES = {
    "mig-consistency": "MIG",
    "kueue-webhooks": "KWH",
    "queue-growth": "CQG",
    "vllm-mode": "VLM",
    "flavor-impact": "RFI",
}


def test_there_are_checks_and_each_has_its_prefix() -> None:
    assert CHECKS
    for check in CHECKS:
        assert all(code.id.startswith(PREFIXES[check.id]) for code in check.codes)


def test_no_code_stands_for_two_things() -> None:
    codes = [code.id for check in CHECKS for code in check.codes]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[A-Z]{3}\d{3}", code) for code in codes)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_code_is_explained_and_nothing_else(check: Check) -> None:
    headings = re.findall(r"^## ([A-Z]{3}\d{3}): (.+)$", check.readme(), re.MULTILINE)
    assert headings == [(code.id, code.title) for code in check.codes]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_assertions_are_facts_with_unique_names(check: Check) -> None:
    names = [assertion.id for assertion in check.assertions]
    assert len(names) == len(set(names))
    for assertion in check.assertions:
        assert not assertion.says.endswith(".")
        assert not re.match(r"(Ensure|Check|Verify)\b", assertion.says)
