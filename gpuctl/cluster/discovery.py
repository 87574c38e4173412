"""What the API server offers. A question about objects it cannot have does not arise; but only discovery may
say so, and discovery that fails says nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import TypeVar

import msgspec

from gpuctl.cluster import errors
from gpuctl.cluster.connection import Connection, Reply
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.cluster.sink import Sink
from gpuctl.facts.kinds import Kind
from gpuctl.facts.state import Inapplicable, Known, NotKnown, Reason, State, Unknown, attempt

T = TypeVar("T")
_SUCCESS, _NOT_FOUND = range(200, 300), 404


class _Version(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    versions: tuple[_Version, ...]
    preferred_version: _Version | None = None


class _GroupName(msgspec.Struct, frozen=True):
    name: str


class _Groups(msgspec.Struct, frozen=True):
    groups: tuple[_GroupName, ...]


class _Core(msgspec.Struct, frozen=True):
    versions: tuple[str, ...]


class _Resource(msgspec.Struct, frozen=True):
    name: str


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...]


class Remembered:
    """In which versions groups were found to be served, for the next look at the same server. Of what was not
    served nothing is remembered: it may have been installed since."""

    def __init__(self) -> None:
        self._versions: dict[str, tuple[str, ...]] = {}

    def of(self, group: str) -> tuple[str, ...]:
        """The versions of a group; empty if nothing is known."""
        return self._versions.get(group, ())

    def keep(self, group: str, versions: tuple[str, ...]) -> None:
        """Takes note of what the server said just now."""
        if versions:
            self._versions[group] = versions
        else:
            self._versions.pop(group, None)


class Discovery:
    """Answers from the server, each asked for once. What earlier looks remember is good enough to say where
    to read, until a read fails; never to say what is served, or that something is not."""

    def __init__(
        self, connection: Connection, deadline: Deadline, sink: Sink, remembered: Remembered | None = None
    ) -> None:
        self._connection = connection
        self._deadline = deadline
        self._sink = sink
        self._remembered = remembered or Remembered()
        self._doubted: set[str] = set()
        self._lock = Lock()
        self._answers: dict[str, Future[tuple[str, ...]]] = {}

    def served(self, group: str) -> State[tuple[str, ...]]:
        """The versions of a group, the preferred one first; empty if it is not served."""
        return self._once(f"API group {group}", lambda what: self._group(group, what))

    def versions(self, kind: Kind) -> tuple[str, ...]:
        """The versions in which a kind may be read, the best first. Raises `NotKnown` if there is none."""
        if not kind.group or len(kind.versions) == 1:
            return kind.versions
        if kind.group not in self._doubted:
            known = self._remembered.of(kind.group)
            readable = tuple(version for version in kind.versions if version in known)
            if readable:
                return readable
        served = self.served(kind.group)
        if not isinstance(served, Known):
            raise NotKnown(served)
        readable = tuple(version for version in kind.versions if version in served.value)
        if not readable:
            raise NotKnown(_unreadable(kind, served.value) if served.value else _not_served(kind))
        return readable

    def others(self, kind: Kind, tried: tuple[str, ...]) -> tuple[str, ...]:
        """The versions to read in the place of those that were tried and failed, as the server says now: what
        was remembered may be over. Empty if they are the same. Raises `NotKnown` if there is none."""
        if not kind.group or len(kind.versions) == 1:
            return ()
        self._doubted.add(kind.group)
        now = self.versions(kind)
        return now if now != tried else ()

    def explained(self, kind: Kind, version: str, gap: Unknown | Inapplicable) -> Unknown | Inapplicable:
        """The gap, or that there is no such API: the server forbids what it does not serve, too, and a 404
        may come from something on the way to it."""
        may_be_absent = isinstance(gap, Unknown) and gap.reason in (Reason.FORBIDDEN, Reason.NOT_SERVED)
        if not may_be_absent or not kind.group:  # every cluster serves the core group
            return gap
        offered = self._once(
            f"discovery of {kind.api_version(version)}", lambda what: self._resources(kind, version, what)
        )
        if isinstance(offered, Known) and kind.plural not in offered.value:
            return _not_served(kind)
        return gap

    def _once(self, what: str, ask: Callable[[str], tuple[str, ...]]) -> State[tuple[str, ...]]:
        with self._lock:
            if what not in self._answers:
                self._answers[what] = in_background(lambda: ask(what))
        return attempt(lambda: self._deadline.result(what, self._answers[what]))

    def _group(self, group: str, what: str) -> tuple[str, ...]:
        reply = self._connection.get(f"/apis/{group}" if group else "/api", what, self._deadline)
        if _is_nowhere(reply):
            self._must_be_absent(group, what)
            versions: tuple[str, ...] = ()
        else:
            versions = _versions(reply, what, core=not group)
        self._sink.served(group, versions)
        self._remembered.keep(group, versions)
        return versions

    def _must_be_absent(self, group: str, what: str) -> None:
        """Raises `NotKnown` unless the list of groups agrees: a server that has just started may not find
        what is there, and whole checks would not apply."""
        listed = typed(self._connection.get("/apis", what, self._deadline), what, _Groups)
        if any(each.name == group for each in listed.groups):
            raise NotKnown(Unknown(Reason.SERVER_ERROR, "404, though the list of API groups has it", what))

    def _resources(self, kind: Kind, version: str, what: str) -> tuple[str, ...]:
        reply = self._connection.get(f"/apis/{kind.api_version(version)}", what, self._deadline)
        if _is_nowhere(reply):
            return ()
        return tuple(each.name for each in typed(reply, what, _Resources).resources)


def typed(reply: Reply, what: str, shape: type[T]) -> T:
    """The body of a successful answer. Raises `NotKnown`."""
    if reply.status not in _SUCCESS:
        raise NotKnown(errors.of_status(reply.status, reply.body, what))
    try:
        return msgspec.json.decode(reply.body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotKnown(errors.of_body(reply.body, error, what)) from error


def _is_nowhere(reply: Reply) -> bool:
    return reply.status == _NOT_FOUND and errors.is_kubernetes_404(reply.body)


def _versions(reply: Reply, what: str, *, core: bool) -> tuple[str, ...]:
    if core:
        return typed(reply, what, _Core).versions
    group = typed(reply, what, _Group)
    preferred = group.preferred_version.version if group.preferred_version else ""
    return tuple(sorted((each.version for each in group.versions), key=lambda name: name != preferred))


def _not_served(kind: Kind) -> Inapplicable:
    return Inapplicable(f"the API {kind} is not served by this cluster")


def _unreadable(kind: Kind, served: tuple[str, ...]) -> Unknown:
    said = f"the cluster serves {', '.join(served)}; gpuctl reads {', '.join(kind.versions)}"
    return Unknown(Reason.NOT_SERVED, said, str(kind))
