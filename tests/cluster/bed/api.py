"""The API server for stand-ins that talk to it all the time: connections that stay, and watches."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from .control_plane import ControlPlane

Object = dict[str, Any]
Body = Mapping[str, Any] | Sequence[Mapping[str, Any]]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
NOT_FOUND = 404
CONFLICT = 409
_BROKEN = (http.client.HTTPException, OSError)


class ApiError(RuntimeError):
    """The API server refused."""

    def __init__(self, what: str, status: int, text: str) -> None:
        super().__init__(f"{what}: {status} {text[:400]}")
        self.status = status


@dataclass
class Api:
    """The API server as its administrator. Threads have a connection each."""

    control_plane: ControlPlane
    agent: str = "gpuctl-bed"
    _own: threading.local = field(default_factory=threading.local)

    def get(self, path: str, **query: str) -> Object:
        return self.request("GET", path, query)

    def items(self, path: str, **query: str) -> list[Object]:
        """The objects of a collection as the watch cache has them."""
        return [*self.request("GET", path, query)["items"]]

    def patch(self, path: str, body: Body, form: str = MERGE, **query: str) -> Object:
        return self.request("PATCH", path, query, body, form)

    def apply(self, path: str, body: Mapping[str, Any]) -> Object:
        return self.patch(path, body, APPLY, fieldManager=self.agent, force="true")

    def post(self, path: str, body: Mapping[str, Any], **query: str) -> Object:
        return self.request("POST", path, query, body)

    def delete(self, path: str, **query: str) -> None:
        """Whether or not it is there."""
        try:
            self.request("DELETE", path, query)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def remove(self, path: str, uid: str, grace: int = 0) -> None:
        """This object, and not another that has its name by now; whether or not it is there."""
        body = {"gracePeriodSeconds": grace, "preconditions": {"uid": uid}}
        try:
            self.request("DELETE", path, {}, {"kind": "DeleteOptions", "apiVersion": "v1", **body})
        except ApiError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise

    def request(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str],
        body: Body | None = None,
        form: str = "application/json",
    ) -> Object:
        """Once more on a connection that the server has closed meanwhile."""
        text = json.dumps(body) if body is not None else None
        try:
            answer = self._send(verb, path, query, text, form)
        except _BROKEN:
            self._own.connection = None
            answer = self._send(verb, path, query, text, form)
        content = answer.read()
        if answer.status >= http.client.BAD_REQUEST:
            raise ApiError(f"{verb} {path}", answer.status, content.decode(errors="replace"))
        return dict(json.loads(content))

    def connect(self, timeout: float | None) -> http.client.HTTPSConnection:
        """A connection that is nobody else's."""
        trust = self.control_plane.trust
        context = ssl.create_default_context(cafile=str(trust.cluster.files.certificate))
        context.load_cert_chain(trust.admin.certificate, trust.admin.key)
        address = urlsplit(self.control_plane.server)
        return http.client.HTTPSConnection(address.netloc, timeout=timeout, context=context)

    def _send(
        self, verb: str, path: str, query: Mapping[str, str], text: str | None, form: str
    ) -> http.client.HTTPResponse:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self.connect(timeout=30)
        headers = {"Content-Type": form, "User-Agent": self.agent}
        connection.request(verb, f"{path}?{urlencode(query)}", text, headers)
        return connection.getresponse()


class Mirror:
    """The objects of a collection as they are now, by namespace and name, kept by a watch in a thread.

    `heard(old, new)` is called in that thread for each change; None is an object that is not there.
    """

    def __init__(
        self, api: Api, path: str, heard: Callable[[Object | None, Object | None], None], **query: str
    ) -> None:
        self._api, self._path, self._heard, self._query = api, path, heard, query
        self._objects: dict[tuple[str, str], Object] = {}
        self._lock = threading.Lock()
        self._order = threading.RLock()
        self._connection: http.client.HTTPSConnection | None = None
        self._stopped = threading.Event()
        self._filled = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mirror of {path}", daemon=True)

    def start(self) -> None:
        """Until the objects are there."""
        self._thread.start()
        if not self._filled.wait(30):
            raise RuntimeError(f"{self._path} could not be listed within 30 s")

    def stop(self) -> None:
        self._stopped.set()
        connection = self._connection
        with suppress(OSError, AttributeError):
            if connection is not None and connection.sock is not None:
                connection.sock.shutdown(2)

    def all(self) -> list[Object]:
        """All of them."""
        with self._lock:
            return list(self._objects.values())

    def find(self, name: str, namespace: str = "") -> Object | None:
        with self._lock:
            return self._objects.get((namespace, name))

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._watch(self._fill())
            except (ApiError, ValueError, *_BROKEN):
                self._stopped.wait(0.2)

    def _fill(self) -> str:
        listed = self._api.get(self._path, **self._query)
        there = {_key(each): each for each in listed["items"]}
        with self._lock:
            gone = self._objects.keys() - there.keys()
        for each in [*there.values()]:
            self._put(each)
        for key in gone:
            self._drop(key)
        self._filled.set()
        return str(listed["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> None:
        query = {**self._query, "watch": "true", "resourceVersion": version, "timeoutSeconds": "600"}
        self._connection = connection = self._api.connect(timeout=None)
        try:
            connection.request(
                "GET", f"{self._path}?{urlencode(query)}", headers={"User-Agent": self._api.agent}
            )
            answer = connection.getresponse()
            while not self._stopped.is_set() and (line := answer.readline()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                if event["type"] == "DELETED":
                    self._drop(_key(event["object"]))
                else:
                    self._put(event["object"])
        finally:
            connection.close()

    def note(self, new: Object) -> None:
        """An object as the API server has just answered it, before the watch tells."""
        self._put(new)

    def _put(self, new: Object) -> None:
        """First told, then found: who finds a change here can rely on it being known everywhere."""
        with self._order:
            old = self._objects.get(_key(new))
            if old is not None and _version(new) <= _version(old):
                return
            self._heard(old, new)
            with self._lock:
                self._objects[_key(new)] = new

    def _drop(self, key: tuple[str, str]) -> None:
        with self._order:
            old = self._objects.get(key)
            if old is not None:
                self._heard(old, None)
            with self._lock:
                self._objects.pop(key, None)


def _version(each: Object) -> int:
    return int(each["metadata"]["resourceVersion"])


def _key(each: Object) -> tuple[str, str]:
    return each["metadata"].get("namespace", ""), each["metadata"]["name"]
