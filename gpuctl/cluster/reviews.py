"""Asks the API server what this user may do, and who this user is, before anything is run or written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

from gpuctl.cluster.connection import Connection
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.cluster.discovery import typed
from gpuctl.facts.kinds import Rule
from gpuctl.facts.state import Known, Reason, State, Unknown, attempt

T = TypeVar("T")

ACCESS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str = ""


class _Access(msgspec.Struct, frozen=True):
    status: _AccessStatus


class _User(msgspec.Struct, frozen=True):
    username: str


class _WhoStatus(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _User


class _Who(msgspec.Struct, frozen=True):
    status: _WhoStatus


@dataclass(frozen=True, slots=True)
class Place:
    """Where a permission is asked for: a namespace, an object. Empty is everywhere."""

    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f" in namespace {self.namespace}" if self.namespace else ""


EVERYWHERE: Final = Place()


class Reviews:
    """Asks each question once in a run. Usable from several threads."""

    def __init__(self, connection: Connection, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline
        self._lock = Lock()
        self._answer = cache(self._ask)
        self._whom = cache(self._ask_who)

    def may(self, rule: Rule, place: Place = EVERYWHERE) -> State[bool]:
        """Whether the user has a permission."""
        with self._lock:
            return self._answer(rule, place)

    def lack(self, *rules: Rule, place: Place = EVERYWHERE) -> Unknown | None:
        """Why something that takes these permissions is not to be tried; None if it may be."""
        for rule in rules:
            answer = self.may(rule, place)
            if answer == Known(False):
                message = f"the permission to {rule}{place} is missing; `gpuctl rbac` prints a role with it"
                return Unknown(Reason.FORBIDDEN, message)
            if isinstance(answer, Unknown):
                return answer
        return None

    def user(self) -> str:
        """Who the API server takes this user for; empty if it does not say."""
        with self._lock:
            return self._whom()

    def _ask(self, rule: Rule, place: Place) -> State[bool]:
        what = f"access review: {rule}{place}"
        attributes = {"group": rule.group, "verb": rule.verb, **_resource(rule)}
        if place.namespace:
            attributes["namespace"] = place.namespace
        if place.name:
            attributes["name"] = place.name
        review = _review("authorization.k8s.io/v1", "SelfSubjectAccessReview", resourceAttributes=attributes)
        return attempt(lambda: self._post(ACCESS, review, what, _Access).status.allowed)

    def _ask_who(self) -> str:
        review = _review("authentication.k8s.io/v1", "SelfSubjectReview")
        answer = attempt(lambda: self._post(WHO, review, "who this user is", _Who))
        return answer.value.status.user_info.username if isinstance(answer, Known) else ""

    def _post(self, path: str, review: dict[str, Any], what: str, shape: type[T]) -> T:
        request = in_background(
            lambda: self._connection.post(path, review, what, self._deadline, stores=False)
        )
        return typed(self._deadline.result(what, request), what, shape)


def _review(version: str, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, **({"spec": spec} if spec else {})}


def _resource(rule: Rule) -> dict[str, str]:
    resource, _, subresource = rule.resource.partition("/")
    return {"resource": resource, **({"subresource": subresource} if subresource else {})}
