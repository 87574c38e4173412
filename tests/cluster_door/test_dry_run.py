"""Creations that are not stored: consent, permission, patience, and what an answer is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.cluster import dry_run
from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.consent import Consent, DryRuns
from gpuctl.cluster.deadline import Deadline
from gpuctl.cluster.live import LiveReader
from gpuctl.cluster.reviews import ACCESS, WHO, Place, Reviews
from gpuctl.facts.kinds import Answer, Attempt, Kind, Rule
from gpuctl.facts.state import Known, NotKnown, Reason, State, Unknown
from tests.cluster_door.fake_api import Behaviour, FakeApi, body, reset

FLAVOR = Kind("lab.example.com", ("v1",), "Flavor", "flavors", namespaced=False)
SENT = {"apiVersion": "lab.example.com/v1", "kind": "Flavor", "metadata": {"generateName": "x-"}}
PATH = "/apis/lab.example.com/v1/flavors"
CREATED = {"kind": "Flavor", "metadata": {"name": "x-1"}}
Reader = Callable[..., LiveReader]


def status(code: int, message: str = "") -> Behaviour:
    text = f'{{"kind": "Status", "message": "{message}"}}'
    return lambda exchange: exchange.send(code, text.encode())


def created(exchange: Any) -> None:
    exchange.send(201, b'{"kind": "Flavor", "metadata": {"name": "x-1"}}')


def waits(answer: Answer) -> float:
    """Patient with anything but a success."""
    return 5.0 if answer.status >= 300 else 0.0


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "PAUSES", (0.01,))


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def reader(api: FakeApi, kubeconfig: Callable[..., Access], told: list[str]) -> Reader:
    """`reader(dry_run, deadline)`: a reader with this consent, which may create flavors."""
    api.on(ACCESS, body({"status": {"allowed": True}}))
    api.on(WHO, body({"status": {"userInfo": {"username": "jane"}}}))

    def make(which: DryRuns = DryRuns.FLAVOR, deadline: float = 10.0) -> LiveReader:
        connection = connect(kubeconfig(api.url, user={"token": "t"}))
        return LiveReader(connection, deadline, consent=Consent(which), announce=told.append)

    return make


def tried(reader: LiveReader, *, on_request: bool = False, patient: bool = False) -> State[Answer]:
    attempt = Attempt(FLAVOR, "", SENT, on_request, waits if patient else lambda _: 0.0)
    state = reader.dry_run([attempt])
    assert isinstance(state, Known)
    return state.value.entries[attempt]


def test_it_is_asked_about_announced_and_not_stored(api: FakeApi, reader: Reader, told: list[str]) -> None:
    api.on(PATH, created)

    answer = tried(reader())

    assert isinstance(answer, Known)
    assert (answer.value.status, answer.value.body) == (201, CREATED)
    paths = [path for path, _ in api.sent]
    assert paths == [ACCESS, WHO, f"{PATH}?dryRun=All&fieldManager=gpuctl"]
    review = api.sent[0][1]["spec"]["resourceAttributes"]
    assert review == {"group": "lab.example.com", "resource": "flavors", "verb": "create"}
    assert told == ["trying to create a Flavor as jane: a server-side dry run, nothing of it is stored"]


@pytest.mark.parametrize(
    ("which", "on_request", "asked"),
    [(DryRuns.NONE, False, False), (DryRuns.FLAVOR, True, False), (DryRuns.ALL, True, True)],
)
def test_consent(api: FakeApi, reader: Reader, which: DryRuns, on_request: bool, asked: bool) -> None:
    api.on(PATH, created)

    answer = tried(reader(which), on_request=on_request)

    assert isinstance(answer, Known) is asked
    assert bool(api.requests) is asked
    if isinstance(answer, Unknown):
        assert answer.reason is Reason.NOT_ASKED
        assert "--dry-run=" in answer.message


def test_without_the_permission_nothing_is_sent(api: FakeApi, reader: Reader, told: list[str]) -> None:
    api.on(ACCESS, body({"status": {"allowed": False}}))

    answer = tried(reader())

    assert isinstance(answer, Unknown)
    assert answer.reason is Reason.FORBIDDEN
    assert "create flavors.lab.example.com" in answer.message
    assert "gpuctl rbac" in answer.message
    assert (api.asked(PATH), told) == (0, [])


def test_a_failure_that_passes_is_none(api: FakeApi, reader: Reader) -> None:
    api.on(PATH, status(500, "EOF"), status(500, "EOF"), created)

    answer = tried(reader(), patient=True)

    assert isinstance(answer, Known)
    assert (answer.value.status, api.asked(PATH)) == (201, 3)


def test_without_patience_the_first_answer_counts(api: FakeApi, reader: Reader) -> None:
    api.on(PATH, status(500, "EOF"), created)

    answer = tried(reader())

    assert isinstance(answer, Known)
    assert (answer.value.status, api.asked(PATH)) == (500, 1)


def test_patience_ends_with_the_deadline(api: FakeApi, reader: Reader, monkeypatch: Any) -> None:
    monkeypatch.setattr(dry_run, "PAUSES", (0.2,))
    api.on(PATH, status(500, "EOF"))

    answer = tried(reader(deadline=1.0), patient=True)

    assert isinstance(answer, Unknown)
    assert (answer.reason, "EOF" in answer.message) == (Reason.TIMEOUT, True)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [(lambda exchange: exchange.send(502, b"<html><title>gateway</title>", "text/html"), Reason.SERVER_ERROR),
     (lambda exchange: exchange.send(201, b"[]"), Reason.MALFORMED),
     (status(401, "who?"), Reason.UNAUTHORIZED)],
)  # fmt: skip
def test_answers_of_anybody_elses(api: FakeApi, reader: Reader, behaviour: Behaviour, reason: Reason) -> None:
    api.on(PATH, behaviour)

    answer = tried(reader())

    assert isinstance(answer, Unknown)
    assert answer.reason is reason


def test_a_tenant_creates_nothing_outside(api: FakeApi, kubeconfig: Callable[..., Access]) -> None:
    connection = connect(kubeconfig(api.url, user={"token": "t"}))
    tenant = LiveReader(connection, 5, namespace="team-a", consent=Consent(DryRuns.ALL))

    assert not isinstance(tenant.dry_run([Attempt(FLAVOR, "", SENT)]), Known)
    assert api.requests == []


# POSTs and reviews


def posted(api: FakeApi, kubeconfig: Callable[..., Access], *, stores: bool) -> int:
    connection = connect(kubeconfig(api.url, user={"token": "t"}))
    return connection.post(PATH, SENT, "a flavor", Deadline.after(5), stores=stores).status


def test_what_stores_nothing_is_sent_again_after_a_broken_connection(
    api: FakeApi, kubeconfig: Callable[..., Access]
) -> None:
    api.on(PATH, reset, created)
    assert posted(api, kubeconfig, stores=False) == 201


def test_what_may_have_been_stored_is_not(api: FakeApi, kubeconfig: Callable[..., Access]) -> None:
    api.on(PATH, reset, created)
    with pytest.raises(NotKnown):
        posted(api, kubeconfig, stores=True)
    assert api.asked(PATH) == 1


@pytest.mark.parametrize(("code", "times"), [(503, 1), (429, 2)])
def test_a_refusal_is_sent_again_only_if_nothing_was_done(
    api: FakeApi, kubeconfig: Callable[..., Access], code: int, times: int
) -> None:
    api.on(PATH, lambda exchange: exchange.send(code, b"{}", headers={"Retry-After": "0"}), created)
    posted(api, kubeconfig, stores=True)
    assert api.asked(PATH) == times


def test_a_review_is_asked_once_and_knows_subresources(
    api: FakeApi, kubeconfig: Callable[..., Access]
) -> None:
    api.on(ACCESS, body({"status": {"allowed": True}}))
    reviews = Reviews(connect(kubeconfig(api.url, user={"token": "t"})), Deadline.after(5))
    rule = Rule("", "pods/portforward", "create", namespaced=True)

    for _ in range(3):
        assert reviews.lack(rule, place=Place("lab")) is None

    ((_, sent),) = api.sent
    assert sent["spec"]["resourceAttributes"] == {
        "group": "", "verb": "create", "resource": "pods", "subresource": "portforward", "namespace": "lab",
    }  # fmt: skip


def test_a_review_that_fails_is_unknown_and_no_permission(
    api: FakeApi, kubeconfig: Callable[..., Access]
) -> None:
    api.on(ACCESS, status(500, "etcd is tired"))
    reviews = Reviews(connect(kubeconfig(api.url, user={"token": "t"})), Deadline.after(5))

    lack = reviews.lack(Rule("", "pods", "create"))

    assert lack is not None
    assert lack.reason is Reason.SERVER_ERROR


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "Status", "metadata": {}}',
        '{"kind": "Other", "metadata": {"name": "x"}}',
        '{"kind": "Flavor", "metadata": {"name": "x", "finalizers": 7}}',
        '{"kind": "Flavor"}',
        "<html><title>Sign in</title></html>",
    ],
)
def test_an_answer_of_success_without_the_object_proves_nothing(
    api: FakeApi, reader: Reader, text: str
) -> None:
    api.on(PATH, lambda exchange: exchange.send(201, text.encode()))

    answer = tried(reader())

    assert isinstance(answer, Unknown)
    assert answer.reason is Reason.MALFORMED
