"""Writes docs/api-faults.md anew, from runs on a cluster of its own."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.cluster.bed import lifecycle

from .matrix import Result, matrices
from .table import PAGE, page


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as logs,
        lifecycle.temporary(logs=Path(logs) / "cluster") as bed,
        matrices(bed) as both,
    ):
        results = [found for each in both for found in each.results(each.trials(), _tell)]
    PAGE.write_text(page(results))
    sys.exit(any(each.objections for each in results))


def _tell(result: Result) -> None:
    for objection in result.objections:
        print(f"{result.trial}: {objection}", flush=True)


if __name__ == "__main__":
    main()
