"""Tries creations that the server does not store: with consent, announced, and after an access review."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any, Final
from urllib.parse import quote

import msgspec

from gpuctl.cluster import errors
from gpuctl.cluster.connection import Connection, Reply
from gpuctl.cluster.consent import DryRuns
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.cluster.reviews import Place, Reviews
from gpuctl.cluster.sink import Sink
from gpuctl.facts.kinds import Answer, Attempt, Meta, Rule
from gpuctl.facts.state import Each, NotKnown, Reason, State, Unknown, attempt

# The API server gives each webhook 10 s, and a conversion 30 s.
SECONDS: Final = 30.0
PAUSES: Final = (1.0, 2.0, 4.0)  # between tries, the last one again and again
AT_ONCE: Final = 3
QUERY: Final = "dryRun=All&fieldManager=gpuctl"
_CREATED, _UNAUTHORIZED = range(200, 300), 401


class _Created(msgspec.Struct, frozen=True):
    kind: str
    metadata: Meta


@dataclass(frozen=True, slots=True)
class DryRunner:
    """Tries creations through a connection, all of it over by the deadline. `announce` is told of each before
    it is done."""

    connection: Connection
    deadline: Deadline
    sink: Sink
    reviews: Reviews
    consent: DryRuns
    announce: Callable[[str], None]

    def answers(self, attempts: Collection[Attempt]) -> Each[Attempt, Answer]:
        """What the server said to each of them."""
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="gpuctl-dry-run") as pool:
            return Each(dict(zip(attempts, pool.map(self._state, attempts), strict=True)))

    def _state(self, wanted: Attempt) -> State[Answer]:
        answer = attempt(lambda: self._permitted(wanted))
        if isinstance(answer, Unknown):
            answer = Unknown(answer.reason, answer.message, f"dry run of {wanted}")
            self.sink.missing_dry_run(wanted, answer)
        return answer

    def _permitted(self, wanted: Attempt) -> Answer:
        lack = self._no_consent(wanted) or self._no_permission(wanted)
        if lack:
            raise NotKnown(lack)
        user = self.reviews.user()
        self.announce(
            f"trying to create {wanted}{f' as {user}' if user else ''}: a server-side dry run, "
            "nothing of it is stored"
        )
        return self._settled(wanted, user)

    def _no_consent(self, wanted: Attempt) -> Unknown | None:
        if self.consent is DryRuns.ALL or (self.consent is DryRuns.FLAVOR and not wanted.on_request):
            return None
        needed = DryRuns.ALL if wanted.on_request else DryRuns.FLAVOR
        return Unknown(
            Reason.NOT_ASKED, f"its creation is tried, and not stored, only with --dry-run={needed}"
        )

    def _no_permission(self, wanted: Attempt) -> Unknown | None:
        kind = wanted.kind
        rule = Rule(kind.group, kind.plural, "create", kind.namespaced)
        return self.reviews.lack(rule, place=Place(wanted.namespace))

    def _settled(self, wanted: Attempt, user: str) -> Answer:
        """The answer that lasts: one that may pass is asked for again, as long as the attempt is patient."""
        began = time.monotonic()
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            answer = self._try(wanted)
            self.sink.dry_run(wanted, user, answer)
            spent = round(time.monotonic() - began, 1)
            if spent + pause > wanted.patience(answer):
                return msgspec.structs.replace(answer, lasted=spent)
            if pause >= self.deadline.left:
                break
            time.sleep(pause)
        said = errors.one_line(str(answer.body.get("message", "")))
        raise NotKnown(Unknown(Reason.TIMEOUT, f"no time was left to see whether this passes: {said}"))

    def _try(self, wanted: Attempt) -> Answer:
        what = f"dry run of {wanted}"
        limit = self.deadline.sooner(SECONDS)
        at, began = datetime.now(UTC), time.monotonic()
        request = in_background(
            lambda: self.connection.post(_path(wanted), wanted.body, what, limit, stores=False)
        )
        reply = limit.result(what, request)
        return Answer(at, round(time.monotonic() - began, 2), reply.status, _body(reply, wanted, what))


def _path(wanted: Attempt) -> str:
    version = str(wanted.body["apiVersion"])
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{quote(wanted.namespace, safe='')}" if wanted.namespace else ""
    return f"{root}{place}/{wanted.kind.plural}?{QUERY}"


def _body(reply: Reply, wanted: Attempt, what: str) -> dict[str, Any]:
    """What Kubernetes itself said: the object as it would be, or a Status. Else raises NotKnown."""
    if reply.status in _CREATED:
        return _object(reply, wanted, what)
    try:
        body = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = None
    if reply.status == _UNAUTHORIZED or not (isinstance(body, dict) and "kind" in body):
        raise NotKnown(errors.of_status(reply.status, reply.body, what))
    return body


def _object(reply: Reply, wanted: Attempt, what: str) -> dict[str, Any]:
    try:
        kind = msgspec.json.decode(reply.body, type=_Created).kind
        if kind != wanted.kind.kind:
            raise msgspec.ValidationError(f"a {kind} instead of a {wanted.kind.kind}")
        return msgspec.json.decode(reply.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotKnown(errors.of_body(reply.body, error, what)) from error
