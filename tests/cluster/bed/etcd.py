"""etcd's JSON gateway: objects straight into the API server's store, and out of it.

What is written in one transaction has one resource version. A client whose watch breaks off between two such
objects resumes after both and never hears of the second; so objects go alone. (Else, with thousands of them,
the scheduler and the controller manager end: they count more departures than arrivals.)
"""

import base64
import http.client
import json
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

REGISTRY = "/registry/"
CONNECTIONS = 4
PER_TRANSACTION = 100  # etcd takes 128
Question = dict[str, Any]


@dataclass(frozen=True)
class Etcd:
    """etcd by its URL."""

    url: str

    def put(self, objects: Iterable[tuple[str, Any]]) -> None:
        """Write objects under their keys."""
        self._carry_out("put", (_put(key, value) for key, value in objects))

    def put_together(self, objects: Iterable[tuple[str, Any]]) -> None:
        """Write objects of which some may be missed, many in one transaction."""
        puts = ({"requestPut": _put(key, value)} for key, value in objects)
        self._carry_out("txn", ({"success": batch} for batch in _batches(puts, PER_TRANSACTION)))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete keys."""
        self._carry_out("deleterange", ({"key": _coded(key)} for key in keys))

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin like this."""
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        wanted = {"key": _coded(prefix), "rangeEnd": _coded(after), "keysOnly": True}
        with closing(self._connect()) as connection:
            found = _ask(connection, "range", wanted)
        return [base64.b64decode(pair["key"]).decode() for pair in found.get("kvs", ())]

    def _carry_out(self, method: str, questions: Iterable[Question]) -> None:
        """Ask, some at the same time; each is a transaction of its own."""
        waiting = iter(questions)
        lock = threading.Lock()

        def take() -> Question | None:
            with lock:
                return next(waiting, None)

        def work() -> None:
            with closing(self._connect()) as connection:
                while question := take():
                    _ask(connection, method, question)

        with ThreadPoolExecutor(CONNECTIONS) as workers:
            for worker in [workers.submit(work) for _ in range(CONNECTIONS)]:
                worker.result()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)


def _batches(items: Iterable[Question], size: int) -> Iterator[list[Question]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def _ask(connection: http.client.HTTPConnection, method: str, question: Question) -> dict[str, Any]:
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
