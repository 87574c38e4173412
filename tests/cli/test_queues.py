"""`gpuctl queues` as a person runs it, over the examples."""

from __future__ import annotations

import json

from tests.cli.program import DEGRADED, HEALTHY, gpuctl


def test_a_table_in_kubectls_habit() -> None:
    result = gpuctl("queues", "--from", DEGRADED)
    assert result.returncode == 0, result.stderr
    head, first, *_ = result.stdout.splitlines()
    assert head.split()[:5] == ["NAME", "COHORT", "PENDING", "ADMITTED", "ACTIVE"]
    assert first.startswith("research")
    assert "quota is in use" in first


def test_one_queue_in_full() -> None:
    result = gpuctl("queues", "research", "--from", DEGRADED)
    assert result.returncode == 0
    assert "why they wait" in result.stdout
    assert "would help: raise nominalQuota" in result.stdout
    assert "POSITION" in result.stdout


def test_json_is_whole_and_ascii() -> None:
    result = gpuctl("queues", "--from", DEGRADED, "-o", "json")
    assert result.stdout.isascii()
    told = json.loads(result.stdout)
    assert {each["name"] for each in told["items"]} == {"research", "training"}
    (research,) = [each for each in told["items"] if each["name"] == "research"]
    assert research["pending"] == len(research["waiting"]) == 13


def test_exit_codes() -> None:
    assert gpuctl("queues", "reserach", "--from", HEALTHY).returncode == 1
    assert gpuctl("queues", "--from", HEALTHY, "-o", "xml").returncode == 2
    assert gpuctl("queues").returncode == 3
    assert gpuctl("check", "queue-growth", "--from", HEALTHY, "--window", "1s").returncode == 2
    assert gpuctl("check", "queue-growth", "--from", HEALTHY, "--prometheus", "x").returncode == 2
