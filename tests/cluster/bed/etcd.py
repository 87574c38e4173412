"""etcd's JSON gateway: objects straight into the API server's store, and out of it.

What is written in one transaction has one resource version. A client whose watch breaks off between two such
objects resumes after both and never hears of the second. So what controllers count (nodes!) goes one by one:
Kubernetes' TTL controller panics if it hears of the end of more nodes than of beginnings.
"""

import base64
import http.client
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

REGISTRY = "/registry/"
T = TypeVar("T")


@dataclass(frozen=True)
class Etcd:
    """etcd by its URL."""

    url: str

    def put(self, objects: Iterable[tuple[str, Any]], at_once: int = 1) -> None:
        """Write objects under their keys, so many in one transaction."""
        self._carry_out(({"requestPut": _put(key, value)} for key, value in objects), at_once)

    def delete(self, keys: Iterable[str], at_once: int = 1) -> None:
        """Delete keys, so many in one transaction."""
        self._carry_out(({"requestDeleteRange": {"key": _coded(key)}} for key in keys), at_once)

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin like this."""
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        wanted = {"key": _coded(prefix), "rangeEnd": _coded(after), "keysOnly": True}
        with closing(self._connect()) as connection:
            found = _ask(connection, "range", wanted)
        return [base64.b64decode(pair["key"]).decode() for pair in found.get("kvs", ())]

    def _carry_out(self, operations: Iterable[Any], at_once: int) -> None:
        with closing(self._connect()) as connection:
            for batch in batches(operations, at_once):
                _ask(connection, "txn", {"success": batch})

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of at most this size."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def _ask(connection: http.client.HTTPConnection, method: str, question: dict[str, Any]) -> dict[str, Any]:
    connection.request("POST", f"/v3/kv/{method}", json.dumps(question))
    response = connection.getresponse()
    body = response.read()
    if response.status != http.client.OK:
        raise RuntimeError(f"etcd says {response.status} to {method}: {body.decode(errors='replace')}")
    answer: dict[str, Any] = json.loads(body)
    return answer


def _put(key: str, value: object) -> dict[str, str]:
    return {"key": _coded(key), "value": _coded(json.dumps(value))}


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
