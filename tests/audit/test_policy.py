"""gpuctl.yaml: what it may say, and what is said of a mistake in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.audit.policy import BUILT_IN, Policy, PolicyError, load, parse


def test_without_a_file_the_default_holds(tmp_path: Path) -> None:
    assert load(None, tmp_path) == BUILT_IN["default"]
    assert load("strict", tmp_path) == BUILT_IN["strict"]


def test_the_file_beside_the_person_is_found(tmp_path: Path) -> None:
    (tmp_path / "gpuctl.yaml").write_text(
        "failOn: warning\nchecks: {kueue-webhooks: {rotationSeconds: 10}}\n"
    )
    policy = load(None, tmp_path)
    assert policy.fail_on == "warning"
    assert policy.checks.kueue_webhooks.rotation_seconds == 10
    assert policy.checks.kueue_webhooks.ca_expiry_warning_days == 14


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("failOnn: error", "unknown key 'failOnn', did you mean 'failOn'?"),
        (
            "checks: {kueue-webhooks: {rotationSecond: 1}}",
            "unknown key 'rotationSecond' in checks.kueue-webhooks, did you mean 'rotationSeconds'?",
        ),
        ("checks: {xyz: {}}", "unknown key 'xyz' in checks; known are flavor-impact, kueue-webhooks"),
        ("failOn: sometimes", "Invalid enum value 'sometimes' - at `$.failOn`"),
        ("kind: Pod", "Invalid enum value 'Pod' - at `$.kind`"),
        ("[1]", "Expected `object`, got `array`"),
        ("checks: {vllm-mode: {concurrency: .nan}}", "checks.vllm-mode.concurrency is not a finite number"),
        ("runbooks: {leaseSeconds: .inf}", "runbooks.leaseSeconds is not a finite number"),
        ("a: [1, -.inf]", "a[1] is not a finite number"),
        ("a: [", "expected the node content"),
        ("a: \x00", "special characters are not allowed"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(PolicyError) as error:
        load(str(file), tmp_path)
    assert says in str(error.value)
    assert "policy.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_or_undecodable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="neither a file nor one of default, strict"):
        load("nowhere", tmp_path)
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"failOn: \xff")
    with pytest.raises(PolicyError, match=r"latin\.yaml"):
        load(str(file), tmp_path)


def test_an_empty_file_is_the_default() -> None:
    assert parse(None, "x") == Policy()


def test_an_unknown_key_inside_a_mapping_or_a_list_is_named() -> None:
    queues = {"vision": {"oldestWaitWarnMinutes": 3}}
    with pytest.raises(PolicyError, match="did you mean 'oldestWaitWarningMinutes'"):
        parse({"checks": {"queue-growth": {"queues": queues}}}, "gpuctl.yaml")
    with pytest.raises(PolicyError, match="did you mean 'reason'"):
        parse({"waivers": [{"raeson": "x"}]}, "gpuctl.yaml")


def test_the_first_pattern_that_fits_a_queue_counts() -> None:
    queues = {"vis*": {"heldHours": 1}, "*": {"heldHours": 2, "requeues": 9}}
    policy = parse({"checks": {"queue-growth": {"queues": queues}}}, "gpuctl.yaml").checks.queue_growth
    assert (policy.of("vision").held_hours, policy.of("vision").requeues) == (1, 5)
    assert (policy.of("other").held_hours, policy.of("other").requeues) == (2, 9)
