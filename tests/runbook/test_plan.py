"""Plan files: what they bear, what is refused, and that they come back as they were."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.runbook.guard import Blocker
from gpuctl.runbook.plan import (
    BadPlan,
    Cluster,
    Plan,
    PlannedStep,
    TargetPlan,
    digest_of,
    from_text,
    refuse_unless_for,
    sealed,
    stale,
    to_text,
)
from gpuctl.runbook.records import Bounds, Person

NOW = datetime(2026, 11, 30, 10, 0, 0, 123456, tzinfo=UTC)
ANA = Person(user="ana", host="ana@bastion-1", at=NOW, did="planned")


def a_target(name: str = "gpu-1", **more: Any) -> TargetPlan:
    about: dict[str, Any] = {
        "target_uid": "u1",
        "preconditions": {"config": "all-1g.10gb", "driver": ""},
        "bounds": Bounds(
            evictions=3, namespaces=("team-a", "team-b"), owner_kinds=("Job",), budgets=("team-a/db",)
        ),
        "steps": (
            PlannedStep(says="cordon", undoes="uncordon", seconds=120.0, held=True, step={"step": "Cordon"}),
        ),
        **more,
    }
    return TargetPlan(target=name, **about)


def a_plan(*targets: TargetPlan, **more: Any) -> Plan:
    about: dict[str, Any] = {
        "runbook": "little",
        "options": {"config": "all-1g.10gb", "force": False, "skip": ["a", "b"], "minutes": 1.0},
        "cluster": Cluster(uid="c1", name="lab"),
        "created_at": NOW,
        "valid_until": NOW + timedelta(hours=1),
        "planner": ANA,
        **more,
    }
    return sealed(Plan(targets=targets or (a_target(),), **about))


def test_a_plan_comes_back_as_it_was_whatever_the_layout() -> None:
    plan = a_plan()
    text = to_text(plan)
    assert from_text(text, "x") == plan
    content = json.loads(text)
    assert from_text(json.dumps(content, separators=(",", ":"), sort_keys=True), "x").digest == plan.digest
    shuffled = dict(reversed(list(content.items())))
    assert from_text(json.dumps(shuffled, indent=7), "x") == plan
    assert plan.digest.startswith("sha256:")


def test_a_file_is_ascii_and_holds_what_a_cluster_said_as_it_was() -> None:
    plan = a_plan(a_target(effects=("gpu 0: \x1b[31m \u202e \U0001f600 é",)))
    assert to_text(plan).isascii()
    assert from_text(to_text(plan), "x") == plan


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
TARGETS = st.builds(
    TargetPlan,
    target=TEXTS,
    target_uid=TEXTS,
    preconditions=st.dictionaries(TEXTS, TEXTS, max_size=3),
    bounds=st.builds(
        Bounds, evictions=st.integers(0, 10**6), namespaces=st.lists(TEXTS, max_size=3).map(tuple)
    ),
    effects=st.lists(TEXTS, max_size=2).map(tuple),
    blockers=st.lists(st.builds(Blocker, guard=TEXTS, message=TEXTS, override=TEXTS), max_size=2).map(tuple),
    steps=st.lists(
        st.builds(
            PlannedStep,
            says=TEXTS,
            undoes=TEXTS,
            seconds=st.floats(0, 1e9),
            held=st.booleans(),
            step=st.dictionaries(TEXTS, ANYTHING, max_size=3),
        ),
        max_size=2,
    ).map(tuple),
)


@given(st.lists(TARGETS, min_size=1, max_size=3), st.dictionaries(TEXTS, ANYTHING, max_size=3), TEXTS)
def test_any_plan_comes_back_and_keeps_its_digest(
    targets: list[TargetPlan], options: dict[str, Any], reason: str
) -> None:
    plan = a_plan(*targets, options=options, reason=reason)
    again = from_text(to_text(plan), "x")
    assert again == plan
    assert digest_of(again) == again.digest == plan.digest


def test_tuples_of_options_and_steps_count_as_the_lists_they_become() -> None:
    as_made = a_plan(options={"skip": ("a", "b")})
    assert as_made.digest == a_plan(options={"skip": ["a", "b"]}).digest
    assert from_text(to_text(as_made), "x").digest == as_made.digest


EDITS: dict[str, Any] = {
    "more evictions": lambda plan: plan["targets"][0]["bounds"].update(evictions=300),
    "another node": lambda plan: plan["targets"][0].update(target="gpu-2"),
    "a step": lambda plan: plan["targets"][0]["steps"][0]["step"].update(node="gpu-2"),
    "a blocker taken away": lambda plan: plan["targets"][0].update(blockers=[]),
    "a longer life": lambda plan: plan.update(validUntil="2036-01-01T00:00:00Z"),
    "an option": lambda plan: plan["options"].update(force=True),
    "another planner": lambda plan: plan["planner"].update(user="ben"),
    "no digest": lambda plan: plan.update(digest=""),
    "a dropped field": lambda plan: plan["targets"][0].pop("preconditions"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_file_is_refused(edit: str) -> None:
    content = json.loads(to_text(a_plan(a_target(blockers=(Blocker(guard="g", message="m"),)))))
    EDITS[edit](content)
    with pytest.raises(BadPlan, match="was edited after it was made"):
        from_text(json.dumps(content), "change.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no plan file"),
        ("runbook: x", "is no plan file"),
        ("{}", "is no plan file"),
        ("[]", "is no plan file"),
        ('{"kind": "Snapshot"}', "is no plan file"),
    ],
)
def test_what_is_no_plan_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadPlan, match=f"change.json {says}"):
        from_text(text, "change.json")


@pytest.mark.parametrize("other", [{"kind": "Run"}, {"api_version": "gpuctl.dev/v2"}])
def test_a_plan_of_another_kind_or_version_is_refused(other: dict[str, str]) -> None:
    with pytest.raises(BadPlan, match=r"not Plan of gpuctl\.dev/v1"):
        from_text(to_text(sealed(msgspec.structs.replace(a_plan(), **other))), "x")


def test_a_plan_without_a_target_is_refused() -> None:
    with pytest.raises(BadPlan, match="names no target"):
        from_text(to_text(sealed(msgspec.structs.replace(a_plan(), targets=()))), "x")


def test_a_plan_is_for_one_cluster_and_for_a_while() -> None:
    plan = a_plan()
    refuse_unless_for(plan, "c1", NOW + timedelta(hours=1))
    with pytest.raises(BadPlan, match=r"for cluster lab \(c1\), this one is c2"):
        refuse_unless_for(plan, "c2", NOW)
    with pytest.raises(BadPlan, match="which cluster"):
        refuse_unless_for(plan, "", NOW)
    with pytest.raises(BadPlan, match="valid until 2026-11-30 11:00:00Z; plan again"):
        refuse_unless_for(plan, "c1", NOW + timedelta(hours=1, seconds=1))


# What has changed since


def test_nothing_new_is_nothing_stale() -> None:
    assert list(stale(a_target(), a_target())) == []


@pytest.mark.parametrize(
    ("fresh", "says"),
    [
        ({"target_uid": "u2"}, "gpu-1 is another object of the same name: uid u2, not u1"),
        ({"preconditions": {"config": "x", "driver": ""}}, "config was all-1g.10gb, now is x"),
        ({"preconditions": {"config": "all-1g.10gb", "driver": "host"}}, "driver was empty, now is host"),
        ({"preconditions": {"config": "all-1g.10gb"}}, "driver was empty, now is unknown"),
        (
            {"preconditions": {"config": "all-1g.10gb", "driver": "", "more": "y"}},
            "more was unknown, now is y",
        ),
        (
            {"bounds": Bounds(evictions=4, namespaces=("team-a",))},
            "4 pods would be evicted, the plan allows 3",
        ),
        (
            {"bounds": Bounds(namespaces=("team-c",))},
            "namespace team-c is concerned, which the plan does not name",
        ),
        ({"bounds": Bounds(owner_kinds=("DaemonSet",))}, "owner kind DaemonSet is concerned, which"),
        ({"bounds": Bounds(budgets=("team-b/x",))}, "PodDisruptionBudget team-b/x is concerned, which"),
    ],
)
def test_what_makes_a_plan_stale(fresh: dict[str, Any], says: str) -> None:
    (difference,) = stale(a_target(), a_target(**fresh))
    assert difference.startswith(says)


def test_churn_inside_of_the_bounds_is_not_stale() -> None:
    narrower = Bounds(evictions=2, namespaces=("team-b",), owner_kinds=(), budgets=("team-a/db",))
    assert list(stale(a_target(), a_target(bounds=narrower, effects=("other",)))) == []


NAMES = st.lists(st.sampled_from("abcd"), unique=True).map(tuple)
BOUNDS = st.builds(Bounds, evictions=st.integers(0, 5), namespaces=NAMES, owner_kinds=NAMES, budgets=NAMES)


@given(BOUNDS, BOUNDS)
def test_bounds_are_within_others_if_and_only_if_every_part_is(ours: Bounds, theirs: Bounds) -> None:
    within = (
        ours.evictions <= theirs.evictions
        and set(ours.namespaces) <= set(theirs.namespaces)
        and set(ours.owner_kinds) <= set(theirs.owner_kinds)
        and set(ours.budgets) <= set(theirs.budgets)
    )
    assert (not list(ours.beyond(theirs))) == within
    assert not list(ours.beyond(ours))


def test_the_name_to_type() -> None:
    assert a_plan().name == "gpu-1"
    assert a_plan(a_target("a"), a_target("b"), selector="pool=x").name == "pool=x"
    assert (
        len(a_plan(a_target("a", blockers=(Blocker(guard="g", message="m"),)), a_target("b")).blockers) == 1
    )
