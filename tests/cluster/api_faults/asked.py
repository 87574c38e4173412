"""What a run asks an API server for: one thing of each kind of request, whatever its page or its moment."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from gpuctl.facts.fact import Read, Served
from tests.cluster.bed.faultproxy import Request

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_GROUP = re.compile(r"/apis/([^/]+)")
_GROUP_VERSION = re.compile(r"/(?:api|apis/([^/]+))/(v[^/]+)")
_RESOURCE = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)
STREAMS = {"exec", "portforward"}


@dataclass(frozen=True, order=True)
class Asked:
    """One thing asked for. Access reviews share a path and differ in their bodies."""

    verb: str
    path: str
    review: str = ""
    next_page: bool = False

    @staticmethod
    def of(request: Request) -> Asked:
        """What this request asks for."""
        review = request.body.decode() if request.path == REVIEWS else ""
        return Asked(request.verb, request.path, review, "continue=" in request.query)

    @property
    def kind(self) -> str:
        """What kind of request it is, in a word or two."""
        if self.path == "/version":
            return "server version"
        if self.path == WHO:
            return "who am I"
        if self.review:
            return "access review"
        if _GROUP.fullmatch(self.path):
            return "API group"
        if _GROUP_VERSION.fullmatch(self.path):
            return "API version"
        return self._of_resource

    @property
    def _of_resource(self) -> str:
        found = _RESOURCE.fullmatch(self.path)
        assert found, self.path
        if self.verb == "POST":
            return "dry run"
        if found["sub"]:
            return {"portforward": "port-forward"}.get(found["sub"], str(found["sub"]))
        if found["name"]:
            return "object"
        return "next page of a list" if self.next_page else "list"

    def __str__(self) -> str:
        """`list pods in namespace kueue-system`: without names that differ from run to run."""
        return " ".join(part for part in (self.kind, self.resource, self._place) if part)

    @property
    def resource(self) -> str:
        """The resource, as kubectl writes it; of discovery, the group."""
        if self.review:
            attributes = json.loads(self.review)["spec"]["resourceAttributes"]
            sub = f"/{attributes['subresource']}" if "subresource" in attributes else ""
            return f"{attributes['verb']} {attributes['resource']}{sub}"
        if not (found := _RESOURCE.fullmatch(self.path)):
            return self.path.rpartition("/apis/")[2] if self.path.startswith("/apis/") else ""
        return f"{found['plural']}.{found['group']}" if found["group"] else found["plural"]

    @property
    def _place(self) -> str:
        found = _RESOURCE.fullmatch(self.path)
        if not found or self.review:
            return ""
        return f"in {found['namespace']}" if found["namespace"] else ""

    @property
    def words(self) -> tuple[str, ...]:
        """One of them must occur where a report says what could not be read."""
        found = _RESOURCE.fullmatch(self.path)
        if self.review or not found:
            return tuple(re.split(r"[ /]", self.resource))
        return tuple(word for word in (found["plural"], found["name"]) if word)

    def concerns(self, read: Read[Any]) -> bool:
        """Whether a read may be the reason for this request."""
        return any((rule.group, rule.resource) == self._permission for rule in read.rules) or (
            self.kind.startswith("API") and self._group in _groups(read)
        )

    def is_another_version_of(self, other: Asked) -> bool:
        """Whether it asks for the same in another version of its API."""
        return self != other and self.verb == other.verb and self._unversioned == other._unversioned

    @property
    def _unversioned(self) -> tuple[str, bool]:
        return re.sub(r"^(/apis/[^/]+)/[^/]+/", r"\1/", self.path), self.next_page

    @property
    def _permission(self) -> tuple[str, str]:
        """Group and resource, as in a permission."""
        if self.review:
            attributes = json.loads(self.review)["spec"]["resourceAttributes"]
            sub = attributes.get("subresource", "")
            return attributes["group"], f"{attributes['resource']}/{sub}" if sub else attributes["resource"]
        if not (found := _RESOURCE.fullmatch(self.path)):
            return "", ""
        return found["group"] or "", f"{found['plural']}/{found['sub']}" if found["sub"] else found["plural"]

    @property
    def _group(self) -> str:
        return self.path.removeprefix("/apis/").partition("/")[0]

    @property
    def is_stream(self) -> bool:
        """Whether it becomes a stream, which has no body."""
        return self.path.rpartition("/")[2] in STREAMS

    @property
    def is_beside(self) -> bool:
        """Whether no verdict rests on it."""
        return self.kind in {"server version", "who am I"} or self.path == "/api/v1/namespaces/kube-system"


def _groups(read: Read[Any]) -> set[str]:
    if isinstance(read, Served):
        return {read.group}
    return {rule.group for rule in read.rules}
