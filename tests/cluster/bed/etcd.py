"""etcd's JSON gateway: objects straight into the API server's store, and out of it."""

import base64
import http.client
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

PER_TRANSACTION = 100  # etcd takes 128
REGISTRY = "/registry/"
T = TypeVar("T")


@dataclass(frozen=True)
class Etcd:
    """etcd by its URL."""

    url: str

    def put(self, objects: Iterable[tuple[str, Any]]) -> int:
        """Write objects under their keys; how many they were."""
        connection = self._connect()
        written = 0
        for batch in batches(objects, PER_TRANSACTION):
            puts = [
                {"requestPut": {"key": _coded(key), "value": _coded(json.dumps(value))}}
                for key, value in batch
            ]
            _ask(connection, "txn", {"success": puts})
            written += len(batch)
        connection.close()
        return written

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin like this."""
        found = _ask(self._connect(), "range", {**_range(prefix), "keysOnly": True})
        return [base64.b64decode(pair["key"]).decode() for pair in found.get("kvs", ())]

    def delete(self, prefix: str) -> int:
        """Delete all keys that begin like this; how many they were."""
        return int(_ask(self._connect(), "deleterange", _range(prefix)).get("deleted", 0))

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


def _range(prefix: str) -> dict[str, str]:
    return {"key": _coded(prefix), "rangeEnd": _coded(prefix[:-1] + chr(ord(prefix[-1]) + 1))}


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
