"""A list, page by page. The next page is requested as soon as the beginning of the last one tells its token.

The API server writes a list's metadata before its items, so its work on one page overlaps with the way of
another through the network and the decoder, and all pages still show the cluster at one moment.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec

from gpuctl.cluster import errors
from gpuctl.cluster.connection import Connection, Reply
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.cluster.decode import PageMeta
from gpuctl.facts.state import NotKnown, Reason, Unknown

LIMIT = 500  # objects in a page
AHEAD = 3  # pages under way at once: more memory, no more speed
_OK, _GONE = 200, 410
_TOKEN = re.compile(rb'\{"kind":"\w+","apiVersion":"[^"]+","metadata":\{[^{}]*?"continue":"([^"\\]+)"')


class Expired(NotKnown):
    """The list is too old to be continued, and must be read from its beginning."""


class List(msgspec.Struct, frozen=True):
    """One page of a list, its objects still undecoded."""

    kind: str
    metadata: PageMeta
    items: tuple[msgspec.Raw, ...] | None


@dataclass(frozen=True, slots=True)
class _Request:
    token: str
    next: Future[str]
    page: Future[List]


@dataclass(frozen=True, slots=True)
class Listing:
    """What is listed: objects under a path, with these labels and fields. `what` names them in messages."""

    connection: Connection
    deadline: Deadline
    path: str
    what: str
    labels: str = ""
    fields: str = ""

    def pages(self) -> Iterator[tuple[msgspec.Raw, ...]]:
        """The objects of each page. Raises `NotKnown` where it cannot go on."""
        ahead = deque([self._request("")])
        while ahead:
            page = self._first(ahead)
            yield page.items or ()
            if not ahead or ahead[0].token != page.metadata.next:  # a page was read twice, and differs now
                ahead = deque([self._request(page.metadata.next)] if page.metadata.next else [])

    def _first(self, ahead: deque[_Request]) -> List:
        while not ahead[0].page.done():
            last = ahead[-1].next
            if len(ahead) >= AHEAD or (last.done() and not last.result()):
                self.deadline.first_of(self.what, ahead[0].page)
            elif not last.done():
                self.deadline.first_of(self.what, ahead[0].page, last)
            else:
                ahead.append(self._request(last.result()))
        return ahead.popleft().page.result()

    def _request(self, token: str) -> _Request:
        following: Future[str] = Future()
        return _Request(token, following, in_background(lambda: self._read(token, following)))

    def _read(self, token: str, following: Future[str]) -> List:
        reply = self.connection.get(
            self._address(token), self.what, self.deadline, lambda text: _announce(text, following)
        )
        page = self._decoded(reply)
        if not following.done():
            following.set_result(page.metadata.next)
        return page

    def _address(self, token: str) -> str:
        query = {
            "limit": LIMIT,
            "labelSelector": self.labels,
            "fieldSelector": self.fields,
            "continue": token,
        }
        return f"{self.path}?{urlencode({key: value for key, value in query.items() if value})}"

    def _decoded(self, reply: Reply) -> List:
        if reply.status != _OK:
            raise self._refused(reply)
        try:
            page = msgspec.json.decode(reply.body, type=List)
            if not page.kind.endswith("List"):
                raise msgspec.ValidationError(f"a {page.kind} instead of a list")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotKnown(errors.of_body(reply.body, error, self.what)) from error
        return page

    def _refused(self, reply: Reply) -> NotKnown:
        if reply.status == _GONE:
            return Expired(
                Unknown(Reason.SERVER_ERROR, "the list expired while it was read (410 Gone)", self.what)
            )
        return NotKnown(errors.of_status(reply.status, reply.body, self.what))


def _announce(text: bytes, following: Future[str]) -> None:
    found = _TOKEN.match(text)
    if found and not following.done():  # a repeated request announces it again
        following.set_result(found[1].decode())
