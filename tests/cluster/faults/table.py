"""docs/faults.md: what was tried, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .cases import Case, Known
from .matrix import NOT_REACHED, Result

PAGE = Path(__file__).parents[3] / "docs" / "faults.md"
COMMAND = "python -m tests.cluster.faults"

_HEAD = """# Killed, stopped, refused, disturbed

`gpuctl apply` of `mig-reconfigure` was run on a real control plane, on simulated nodes with pods that must be
evicted and stand-ins of NVIDIA's programs, and something went wrong: at each of its {writes} write calls and
each of the {undo} of an undo, or on the node, or with the plan. Each case is played by real processes, with
real signals, through the real API server; API errors are a proxy's. `{command}` writes
this page; `make test-faults` plays everything, `.ci/run` a part.

{count}

After each, a person does what gpuctl says: resumes, undoes or unlocks. A case is wrong

- if something is lost: a pod, or what another did to the node;
- if anything is evicted that the plan does not name, or something twice (by the API server's audit log);
- if gpuctl says success where labels, capacity and the GPUs themselves do not show it;
- if, when the first process has ended, there is a lock, taint, cordon, mark or debug pod that the journal
  does not name, and if in the end there is any.

What came of the cases:

- **succeeded**, **went on**: the run itself came to a good end in spite of it;
- **resumed**, **undone**: another process brought it to its end, or back;
- **unlocked**: the run had ended or had not begun, and only its lock was left, or it was given up;
- **ended**, **nothing begun**: it was over, or nothing had happened yet, and nothing was left to do;
- **refused**: nothing was done.

"""

_OTHERS = """## The other runbooks

{books} were played
the same way, on many targets at once: killed at their write calls, resumed and taken back, refused and
disturbed by the API server. `queue-limit` and `flavor-hold` change ClusterQueues of a real Kueue,
`vllm-switch-mode` stand-ins of engines on a real kubelet, and `kueue-restart`, played alone, restarts that
Kueue's manager. At the writes that all runbooks have in common, `queue-limit` was killed before and after,
to go on and to go back, as `mig-reconfigure` was above; each of the others once, in one of these ways after
the other. So was `kueue-restart`, which has one target only, at all its writes but the restart itself.

{count}

A case is wrong, too, if anything of the object is another than before, or than it was to be; if it was
written to more often than the change takes; or if what gpuctl says is done does not work.

`mig-recover`, `taint-unmigged` and `device-plugin-restart` are killed at each of their writes, resumed, taken
back and refused in `tests/cluster/test_mig_recover_faults.py`, `flavor-drill` in
`tests/cluster/test_flavor_drill_killed.py`. The writes of `drain` are among those of `mig-reconfigure`.

"""


def page(results: Sequence[Result], known: Known, rolled: str, planned: Sequence[Case[Any]]) -> str:
    """The whole page. `planned`: the cases that there are, whether or not all were played."""
    nodes, books = [each for each in results if not each.book], [each for each in results if each.book]
    of_nodes, of_books = [each for each in planned if not each.book], [each for each in planned if each.book]
    head = _HEAD.format(
        writes=len(known.apply), undo=len(known.undo), command=COMMAND, count=told(nodes, of_nodes)
    )
    named = [f"`{each}`" for each in dict.fromkeys(each.book for each in of_books)]
    others = _OTHERS.format(
        books=f"{', '.join(named[:-1])} and {named[-1]}", count=told(books, of_books, "cases of theirs")
    )
    parts = (*_table(nodes, of_nodes), "", *_rolling(rolled), "", *_calls(known), "", *_each(nodes), "")
    return head + "\n".join(parts) + "\n" + others + "\n".join(_books(books, of_books)) + "\n"


def told(results: Sequence[Result], planned: Sequence[Case[Any]], cases: str = "cases") -> str:
    """How many there are, and what of them."""
    missing = len(planned) - len(results)
    count = f"{len(results)} of {len(planned)}" if missing else str(len(results))
    wrong = sum(bool(each.wrong) for each in results)
    unreached = sum(each.outcome == NOT_REACHED for each in results)
    over = f", and {unreached} in which the run was over before" if unreached else ""
    rest = f" The other {missing} were not played." if missing else ""
    return f"{count} {cases}, {wrong} of them wrong{over}.{rest}"


def _table(results: Sequence[Result], planned: Sequence[Case[Any]]) -> Iterator[str]:
    yield "| what goes wrong | cases | what came of them | wrong |"
    yield "|---|---|---|---|"
    for group in _groups(results):
        yield f"| {group} | {_row(_in(results, group), _in(planned, group))} |"


def _books(results: Sequence[Result], planned: Sequence[Case[Any]]) -> Iterator[str]:
    yield "| runbook | what goes wrong | cases | what came of them | wrong |"
    yield "|---|---|---|---|---|"
    for book in dict.fromkeys(each.book for each in results):
        mine = [each for each in results if each.book == book]
        there = [each for each in planned if each.book == book]
        for group in _groups(mine):
            yield f"| `{book}` | {group} | {_row(_in(mine, group), _in(there, group))} |"


T = TypeVar("T", Result, Case[Any])


def _in(those: Sequence[T], group: str) -> list[T]:
    return [each for each in those if each.group == group]


def _groups(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(each.group for each in results))


def _row(some: Sequence[Result], there: Sequence[Case[Any]]) -> str:
    """How many, what came of them, and how many are wrong."""
    counts = Counter(each.outcome for each in some if not each.wrong)
    words = ", ".join(f"{word} {count}" for word, count in sorted(counts.items()))
    number = f"{len(some)} of {len(there)}" if len(there) > len(some) else str(len(some))
    return f"{number} | {words} | {sum(bool(each.wrong) for each in some)}"


def _rolling(rolled: str) -> Iterator[str]:
    yield "## A rolling change"
    yield ""
    yield rolled


def _calls(known: Known) -> Iterator[str]:
    yield "## The write calls"
    yield ""
    yield f"Of a run: {'; '.join(known.apply)}."
    yield ""
    yield f"Of an undo that has all to take back: {'; '.join(known.undo)}."


def _each(results: Sequence[Result]) -> Iterator[str]:
    """Those that are not about one write call."""
    yield "## What else was tried"
    yield ""
    for group in _groups(results):
        some = [each for each in results if each.group == group]
        if any(each.single for each in some):
            yield f"- **{group}**: {'; '.join(f'{each.name}: {each.outcome}' for each in some)}"
