"""Recognition, releases, selectors, reach and configuration: Kueue's rules as tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.facts.kinds import Answer
from gpuctl.facts.objects import FieldWriter, LabelSelector, ServiceReference, Webhook, WebhookClientConfig
from gpuctl.facts.selectors import selects
from gpuctl.facts.state import NotKnown
from gpuctl.kueue import answers, configuration, releases
from gpuctl.kueue.owners import injected_names
from gpuctl.kueue.registrations import Written, is_own, last_write


@pytest.mark.parametrize(
    ("name", "path", "own"),
    [
        ("mresourceflavor.kb.io", "/anything", True),
        ("vclusterqueue.kb.io", "", True),
        ("vworkload.kb.io", "/validate-kueue-x-k8s-io-v1beta2-workload", True),
        ("renamed.example.com", "/mutate-kueue-x-k8s-io-v1beta1-clusterqueue", True),
        ("vworkload.kb.io", "/validate-example-com-v1-workload", False),
        ("mpod.kb.io", "/mutate--v1-pod", False),
        ("xmresourceflavor.kb.io", "/x", False),
    ],
)
def test_only_full_names_and_paths_are_kueues(name: str, path: str, own: bool) -> None:
    service = ServiceReference(namespace="n", name="s", path=path)
    assert is_own(Webhook(name, WebhookClientConfig(service))) is own


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("registry.k8s.io/kueue/kueue:v0.17.0", (0, 17)),
        ("registry.k8s.io/kueue/kueue:v0.17.0@sha256:abc", (0, 17)),
        ("localhost:5000/kueue:0.9.1-rc.1", (0, 9)),
        ("localhost:5000/kueue", None),
        ("kueue:main", None),
        ("kueue:v20260101-v0.17.0", None),
        ("registry.redhat.io/kueue/kueue-rhel9@sha256:abc", None),
        ("", None),
    ],
)
def test_the_release_an_image_tells(image: str, release: tuple[int, int] | None) -> None:
    assert releases.release_of(image) == release


def test_webhooks_by_release() -> None:
    names = ["vcohort.kb.io", "mmxjob.kb.io", "mpod.kb.io", "mrayservice.kb.io", "someone.else"]
    assert [each.name for each in releases.foreign_webhooks((0, 8), names)] == [
        "vcohort.kb.io",
        "mrayservice.kb.io",
    ]
    assert [each.name for each in releases.foreign_webhooks((0, 17), names)] == ["mmxjob.kb.io"]


def test_the_api_version_of_a_release() -> None:
    table = {(0, 14): "v1beta1", (0, 15): "v1beta2", (0, 19): "v1beta2", (1, 0): None}
    assert {release: releases.api_version(release) for release in table} == table


SCALARS = st.none() | st.text() | st.integers()
JSON = st.recursive(SCALARS, lambda part: st.lists(part) | st.dictionaries(st.text(), part))


@given(st.integers(100, 599), st.fixed_dictionaries({}, optional={"message": JSON, "metadata": JSON}))
def test_any_answer_has_a_meaning(status: int, body: dict[str, Any]) -> None:
    reading = answers.read(Answer(datetime(2026, 11, 30, tzinfo=UTC), 0.1, status, body))
    assert reading.meaning in answers.Meaning


def test_the_names_that_the_rotator_writes_to() -> None:
    derived = {"q-mutating-webhook-configuration", "q-validating-webhook-configuration"}
    fixed = {"kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration"}
    assert injected_names("q-webhook-service", (0, 14)) == derived
    assert injected_names("q-webhook-service", (0, 11)) == fixed
    assert injected_names("q-webhook-service", None) == derived | fixed


def requirement(operator: str, *values: str) -> LabelSelector:
    content = {"matchExpressions": [{"key": "a", "operator": operator, "values": list(values)}]}
    return msgspec.convert(content, LabelSelector)


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (requirement("In", "1", "2"), ["1"]),
        (requirement("NotIn", "1"), ["3", None]),
        (requirement("Exists"), ["1", "3"]),
        (requirement("DoesNotExist"), [None]),
        (requirement("Gt", "0"), []),
        (LabelSelector(match_labels={"a": "3"}), ["3"]),
        (LabelSelector(), ["1", "3", None]),
    ],
)
def test_selectors_follow_kubernetes_rules(selector: LabelSelector, selected: list[str | None]) -> None:
    values = ["1", "3", None]
    assert [each for each in values if selects(selector, {"a": each} if each else {})] == selected


Fields = dict[str, Any]


def owning(manager: str, hour: int | None, fields: Fields) -> FieldWriter:
    at = None if hour is None else datetime(2026, 11, 30, hour, tzinfo=UTC)
    return FieldWriter(manager=manager, time=at, fields=fields)


BUNDLE: Fields = {"f:webhooks": {'k:{"name":"a"}': {"f:clientConfig": {"f:caBundle": {}}}}}
CONVERSION: Fields = {"f:spec": {"f:conversion": {"f:webhook": {"f:clientConfig": {"f:caBundle": {}}}}}}
OTHER: Fields = {"f:webhooks": {'k:{"name":"a"}': {"f:failurePolicy": {}}}}


@pytest.mark.parametrize(
    ("writers", "by"),
    [
        ([owning("helm", 9, OTHER), owning("kueue", 8, BUNDLE)], "kueue"),
        ([owning("kueue", 8, BUNDLE), owning("kubectl", 9, BUNDLE)], "kubectl"),
        ([owning("old", None, BUNDLE), owning("kueue", 1, CONVERSION)], "kueue"),
        ([owning("helm", 9, OTHER)], None),
        ([owning("x", 9, {"f:webhooks": 7, "f:spec": {"f:conversion": "y"}})], None),
        ([], None),
    ],
)
def test_who_wrote_a_bundle_last(writers: list[FieldWriter], by: str | None) -> None:
    found = last_write(writers)
    assert (found.by if isinstance(found, Written) else None) == by


def test_the_defaults_of_a_configuration() -> None:
    for text in (None, "", "apiVersion: config.kueue.x-k8s.io/v1beta1", "internalCertManagement: {}"):
        assert configuration.parse(text) == configuration.ManagerConfig()


@pytest.mark.parametrize(
    "text", ["[", "7", "webhook: {port: often}", "a: !!python/object:os.system {}", "\x00"]
)
def test_what_is_no_configuration(text: str) -> None:
    with pytest.raises(NotKnown):
        configuration.parse(text)
