"""docs/api-faults.md: what was tried, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from .matrix import Result
from .troubles import TROUBLES

PAGE = Path(__file__).parents[3] / "docs" / "api-faults.md"
COMMAND = "python -m tests.cluster.api_faults"
KINDS = (
    "list", "next page of a list", "object", "log", "exec", "port-forward", "dry run", "access review",
    "API group", "API version", "who am I", "server version",
)  # fmt: skip
WORDS = ("unknown", "not proven", "fail", "told", "not felt", "raised")

_HEAD = """# A bad API server

`gpuctl check` was run against an API server that fails: at each request it makes, with each fault that it can
meet, for as long as the run lasts and, where that may heal, only once. `{command}`
writes this page, from runs on a real control plane behind a proxy; `make test-api-faults` compares.

{trials} runs, {wrong} of them wrong. A run is wrong if it ends in a traceback, or more than {margin:g} s
after `--deadline`; if something passes that rests on what was not read; if the report does not name
the object and the reason; if it leaves with 0 while something required is unknown; or if what does not
rest on the fault is judged otherwise than without it.

In the table, a number of runs stands with what came of them:

- **unknown**: assertions that rest on the answer are unknown; the exit code is 3, or 1 with findings.
- **not proven**: the same for proofs that were not permitted; the report says which permission it takes.
- **fail**: an assertion failed, because of what was missing.
- **told**: what could not be read is in the report's `coverage`, and no verdict rests on it.
- **not felt**: nothing is missing: it was asked again, or in another version, or nothing rests on it.

"""


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    from .oracle import MARGIN

    wrong = sum(bool(each.objections) for each in results)
    head = _HEAD.format(command=COMMAND, trials=len(results), wrong=wrong, margin=MARGIN)
    return head + "\n".join((*_table(results), "", *_asked(results))) + "\n"


def _table(results: Sequence[Result]) -> Iterator[str]:
    kinds = [kind for kind in KINDS if any(each.trial.asked.kind == kind for each in results)]
    yield f"| fault | reason in the report | {' | '.join(kinds)} |"
    yield f"|{'---|' * (len(kinds) + 2)}"
    for trouble in TROUBLES:
        some = [each for each in results if each.trial.trouble.name == trouble.name]
        cells = [_cell([each for each in some if each.trial.asked.kind == kind]) for kind in kinds]
        yield f"| {trouble.name} | {_reasons(some)} | {' | '.join(cells)} |"


def _cell(results: Sequence[Result]) -> str:
    counts = Counter(each.outcome for each in results)
    return ", ".join(f"{word} {counts[word]}" for word in WORDS if counts[word])


def _reasons(results: Sequence[Result]) -> str:
    return ", ".join(sorted({reason for each in results for reason in each.reasons}))


def _asked(results: Sequence[Result]) -> Iterator[str]:
    yield "What was asked for:"
    yield ""
    for kind in KINDS:
        of_kind = {each.trial.asked for each in results if each.trial.asked.kind == kind}
        things = Counter(asked.resource for asked in of_kind)
        names = ", ".join(
            f"{name} ({count})" if count > 1 else name for name, count in sorted(things.items())
        )
        if of_kind:
            yield f"- **{kind}**: {len(of_kind)}" + (f": {names}" if names else "")
