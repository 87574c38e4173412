"""Asks pods themselves, through the API server: by HTTP and by a command, with consent and after a review."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote

from gpuctl.cluster import errors
from gpuctl.cluster.connection import Connection
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.cluster.execution import execute
from gpuctl.cluster.reviews import Place, Reviews
from gpuctl.cluster.sink import Sink
from gpuctl.facts.fact import EXEC, PROXY
from gpuctl.facts.kinds import Rule
from gpuctl.facts.nodes import Place as Container
from gpuctl.facts.pods import Page, PodReading, Run
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown

T = TypeVar("T")
Q = TypeVar("Q", Page, Run)

SECONDS: Final = 20.0  # for all that one pod is asked: one that hangs costs no more
LARGEST: Final = 4 << 20  # bytes of an answer
AT_ONCE: Final = 12
_OK, _NOT_FOUND = 200, 404


@dataclass(frozen=True, slots=True)
class PodAsker:
    """Asks through a connection, all of it over by the deadline."""

    connection: Connection
    deadline: Deadline
    sink: Sink
    reviews: Reviews
    told: Callable[[str], None] = lambda _: None

    def pages(self, pages: Collection[Page], reading: PodReading[Page, T]) -> Each[Page, T]:
        """What the pods answer; a page that does not exist is absent."""
        return self._each(pages, (PROXY,), self._page, reading)

    def runs(self, runs: Collection[Run], reading: PodReading[Run, T]) -> Each[Run, T]:
        """What the commands print."""
        return self._each(runs, tuple(sorted(EXEC)), self._run, reading)

    def _each(
        self,
        questions: Collection[Q],
        rules: tuple[Rule, ...],
        ask: Callable[[Q, Deadline], str | None],
        reading: PodReading[Q, T],
    ) -> Each[Q, T]:
        by_pod: dict[object, list[Q]] = {}
        for question in questions:
            by_pod.setdefault(question.pod, []).append(question)
        entries: dict[Q, State[T]] = {}
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="gpuctl-pod") as pool:
            asked = pool.map(lambda each: list(self._of_pod(each, rules, ask, reading)), by_pod.values())
            for number, answers in enumerate(asked, start=1):
                self.told(f"{number} of {len(by_pod)} pods asked")
                entries.update({question: state for question, state in answers if state is not None})
        return Each(entries)

    def _of_pod(
        self,
        questions: Sequence[Q],
        rules: tuple[Rule, ...],
        ask: Callable[[Q, Deadline], str | None],
        reading: PodReading[Q, T],
    ) -> Iterator[tuple[Q, State[T] | None]]:
        lack = self.reviews.lack(*rules, place=Place(questions[0].pod.namespace))
        limit = self.deadline.sooner(SECONDS)
        for question in questions:
            yield question, self._state(question, lack, lambda each: ask(each, limit), reading)

    def _state(
        self, question: Q, lack: Unknown | None, ask: Callable[[Q], str | None], reading: PodReading[Q, T]
    ) -> State[T] | None:
        """None where there is no such thing to be asked. A mistake in `reading` costs this question alone."""
        try:
            if lack is not None:
                raise NotKnown(lack)
            text = ask(question)
            state = None if text is None else Known(reading.parse(question, text))
        except NotKnown as gap:
            return self._gap(question, gap.state)
        except ValueError as error:
            return self._gap(question, Unknown(Reason.MALFORMED, errors.one_line(str(error))))
        except Exception as error:  # noqa: BLE001 - the border around one entry: a bug here must not cost the others
            return Unknown(Reason.INTERNAL, f"{type(error).__name__}: {error}", str(question))
        self.sink.heard(question, None if text is None else reading.keep(question, text))
        return state

    def _gap(self, question: Q, state: Unknown | Inapplicable) -> Unknown | Inapplicable:
        if isinstance(state, Inapplicable):
            return state
        gap = Unknown(state.reason, state.message, str(question))
        self.sink.not_heard(question, gap)
        return gap

    def _page(self, page: Page, limit: Deadline) -> str | None:
        what = str(page)
        request = in_background(
            lambda: self.connection.get(_path(page), what, limit, most=LARGEST, foreign=True)
        )
        reply = limit.result(what, request)
        if reply.status == _OK:
            return reply.body.decode(errors="replace")
        if reply.status == _NOT_FOUND:
            return None
        if errors.is_status(reply.body):
            raise NotKnown(errors.of_status(reply.status, reply.body, what))
        raise NotKnown(Unknown(Reason.SERVER_ERROR, f"the pod itself answers HTTP {reply.status}", what))

    def _run(self, run: Run, limit: Deadline) -> str:
        what = str(run)
        place = Container(run.pod.namespace, run.pod.name, run.container)
        ran = limit.result(
            what, in_background(lambda: execute(self.connection, place, list(run.command), limit))
        )
        if ran.failure is not None:
            raise NotKnown(ran.failure)
        if ran.code:
            said = errors.one_line(ran.stderr) or "no further word"
            raise NotKnown(Unknown(Reason.SERVER_ERROR, f"exit code {ran.code}: {said}", what))
        return ran.stdout


def _path(page: Page) -> str:
    namespace, pod = quote(page.pod.namespace, safe=""), quote(page.pod.name, safe="")
    scheme = "https:" if page.https else ""
    return f"/api/v1/namespaces/{namespace}/pods/{scheme}{pod}:{page.port}/proxy{page.path}"
