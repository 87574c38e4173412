"""Plays everything on a cluster of its own, and writes docs/faults.md anew.

    python -m tests.cluster.faults [--keep FILE]… [--nodes N] [--books | --nodes-only | --write] [WORD…]

WORD: only cases that have one of them in their names. --books: only those of the other runbooks.
--nodes-only: only those of mig-reconfigure. With any of these the page stays as it is.
--keep: results are kept in this file (the last one, where several are named), and what has come to a good end
in any of them is not played again. --write: plays nothing, and writes the page from what was kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.bed import Bed, lifecycle

from .book_cases import USUAL as USUAL_BOOKS
from .book_cases import all_cases
from .cases import Case, Known
from .everything import USUAL, everything, in_turn
from .kept import Kept, Key
from .matrix import ROLLED, SLOTS, Result, matrix
from .playhouse import playhouse
from .table import PAGE, page

ROLLING: Key = ("", ROLLED, "")


def main() -> None:
    chosen = _arguments()
    kept = Kept(chosen.keep)
    if chosen.write:
        sys.exit(_written(kept, kept.known or USUAL))
    with tempfile.TemporaryDirectory() as logs, lifecycle.temporary(logs=Path(logs) / "cluster") as bed:
        if not chosen.books:
            _play_nodes(bed, kept, chosen)
        if not chosen.nodes_only:
            _play_books(bed, kept, chosen.words)
    if chosen.words or chosen.books or chosen.nodes_only:
        sys.exit(any(each.wrong for each in kept.played))
    sys.exit(_written(kept, kept.known or USUAL))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults")
    parser.add_argument("--keep", type=Path, action="append", default=[])
    parser.add_argument("--nodes", type=int, default=SLOTS)
    parts = parser.add_mutually_exclusive_group()
    for part in ("--books", "--nodes-only", "--write"):
        parts.add_argument(part, action="store_true")
    parser.add_argument("words", nargs="*")
    return parser.parse_args()


def _play_nodes(bed: Bed, kept: Kept, chosen: argparse.Namespace) -> None:
    """The cases of mig-reconfigure; the rolling change at last."""
    with matrix(bed, chosen.nodes, kept.known) as made:
        kept.learn(made.known)
        made.results([*_wanted(everything(made.known), kept, chosen.words)], kept.take)
        if not chosen.words and ROLLING not in kept.good:
            kept.take(made.rolled())


def _play_books(bed: Bed, kept: Kept, words: Sequence[str]) -> None:
    """Those of the other runbooks, whose write calls must be as they were."""
    cases = [*_wanted(all_cases(), kept, words)]
    if not cases:
        return
    with playhouse(bed) as made:
        if not words:
            assert made.known() == USUAL_BOOKS
        made.results(cases, kept.take)


def _wanted(cases: Sequence[Case[Any]], kept: Kept, words: Sequence[str]) -> Iterator[Case[Any]]:
    for each in in_turn(cases):
        if each.key not in kept.good and (not words or any(word in str(each) for word in words)):
            yield each


def _written(kept: Kept, known: Known) -> bool:
    """Writes the page of all results, and says whether one of them is wrong."""
    nodes, books = everything(known), all_cases()
    rolled = kept.all.get(ROLLING)
    results = _of(kept.all, [*nodes, *books])
    PAGE.write_text(
        page(results, known, rolled.outcome if rolled else "It was not played.", [*nodes, *books])
    )
    return any(each.wrong for each in (*results, *([rolled] if rolled else [])))


def _of(results: Mapping[Key, Result], cases: Sequence[Case[Any]]) -> list[Result]:
    """In the order of the cases."""
    return [results[each.key] for each in cases if each.key in results]


if __name__ == "__main__":
    main()
