"""Writes to a live cluster, for runbooks alone: one request for each call, sent once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

from gpuctl.cluster import errors
from gpuctl.cluster.connection import Connection, Reply
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.facts.kinds import Kind, Ref
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.runbook.writer import Blocked, Change, Conflict, Put, Test, WriteFailed

SECONDS: Final = 15.0  # for one request; a run looks again and decides anew after that
_OK, _NOT_FOUND, _LATE, _CONFLICT, _INVALID, _TOO_MANY = 200, 404, 408, 409, 422, 429
_SERVER_SIDE = 500


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""


class _Made(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


@dataclass(frozen=True, slots=True)
class LiveWriter:
    """The Writer of a live cluster."""

    connection: Connection
    seconds: float = SECONDS

    def patch(self, ref: Ref, uid: str, changes: Sequence[Change]) -> None:
        body = [_operation(each) for each in (Test("/metadata/uid", uid), *changes)]
        what = f"change of {ref}"
        reply = self._answer(what, lambda until: self.connection.patch(_path(ref), body, what, until))
        if reply.status != _OK:
            raise _refusal(reply, what)

    def create(self, ref: Ref, body: Mapping[str, Any]) -> str:
        what = f"creation of {ref}"
        metadata = {**body.get("metadata", {}), "name": ref.name}
        if ref.namespace:
            metadata["namespace"] = ref.namespace
        full = {**body, "apiVersion": ref.kind.api_version(), "kind": ref.kind.kind, "metadata": metadata}
        path = _path(ref, with_name=False)
        reply = self._answer(what, lambda until: self.connection.post(path, full, what, until))
        if reply.status not in (_OK, 201):
            raise _not_made(reply, what)
        return _made(reply, what).metadata.uid

    def delete(self, ref: Ref, uid: str, grace: int | None = None) -> None:
        what = f"deletion of {ref}"
        options = _options(uid, grace)
        reply = self._answer(what, lambda until: self.connection.delete(_path(ref), options, what, until))
        if reply.status == _NOT_FOUND and errors.is_absent(reply.body):
            return
        if reply.status not in (_OK, 202):
            raise _refusal(reply, what)

    def evict(self, pod: Ref, uid: str, grace: int | None = None) -> Blocked | None:
        what = f"eviction of {pod}"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": _options(uid, grace),
        }
        path = f"{_path(pod)}/eviction"
        reply = self._answer(what, lambda until: self.connection.post(path, body, what, until, repeats=False))
        if reply.status == _TOO_MANY:
            return Blocked(errors.of_status(reply.status, reply.body, what).message, reply.retry_after)
        if reply.status in (_OK, 201) or (reply.status == _NOT_FOUND and errors.is_absent(reply.body)):
            return None
        if errors.is_ending(reply.body):  # the pod goes with its namespace
            raise WriteFailed(errors.of_status(reply.status, reply.body, what))
        raise _refusal(reply, what)

    def _answer(self, what: str, send: Callable[[Deadline], Reply]) -> Reply:
        until = Deadline.after(self.seconds)
        try:
            return until.result(what, in_background(lambda: send(until)))
        except NotKnown as gap:
            state = gap.state
            assert isinstance(state, Unknown)  # noqa: S101 - a request fails, it is never inapplicable
            raise WriteFailed(state, hopeless=state.reason is Reason.UNAUTHORIZED) from gap


def _operation(change: Change) -> dict[str, Any]:
    if isinstance(change, Test):
        return {"op": "test", "path": change.path, "value": change.value}
    if isinstance(change, Put):
        return {"op": "add", "path": change.path, "value": change.value}
    return {"op": "remove", "path": change.path}


def _options(uid: str, grace: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    return options if grace is None else {**options, "gracePeriodSeconds": grace}


def _path(ref: Ref, *, with_name: bool = True) -> str:
    kind: Kind = ref.kind
    root = f"/apis/{kind.api_version()}" if kind.group else f"/api/{kind.api_version()}"
    place = f"/namespaces/{quote(ref.namespace, safe='')}" if ref.namespace else ""
    path = f"{root}{place}/{kind.plural}"
    return f"{path}/{quote(ref.name, safe='')}" if with_name else path


def _refusal(reply: Reply, what: str) -> WriteFailed:
    """What an answer other than success means: 422 is what the API server says to a test that fails."""
    state = errors.of_status(reply.status, reply.body, what)
    if reply.status in (_CONFLICT, _INVALID) or (reply.status == _NOT_FOUND and errors.is_absent(reply.body)):
        return Conflict(state)
    passing = reply.status in (_LATE, _TOO_MANY) or reply.status >= _SERVER_SIDE
    return WriteFailed(state, hopeless=not passing)


def _not_made(reply: Reply, what: str) -> WriteFailed:
    """A creation has no value to be tested: 422 and 404 speak of the object and of its namespace."""
    if errors.is_taken(reply.body):
        return Conflict(errors.of_status(reply.status, reply.body, what))
    if reply.status in (_NOT_FOUND, _INVALID):
        return WriteFailed(errors.of_status(reply.status, reply.body, what), hopeless=True)
    refusal = _refusal(reply, what)
    return WriteFailed(refusal.state, hopeless=refusal.hopeless)  # 409 of a quota that changes meanwhile


def _made(reply: Reply, what: str) -> _Made:
    try:
        return msgspec.json.decode(reply.body, type=_Made)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WriteFailed(errors.of_body(reply.body, error, what)) from error
