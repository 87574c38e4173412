"""Series that were read from a Prometheus, as a snapshot holds them: one file for each query."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from gpuctl.cluster import metrics
from gpuctl.cluster.archive import Damaged, File
from gpuctl.facts.metrics import Labels, Points
from gpuctl.facts.state import Each, Inapplicable, Known, Reason, State, Unknown

FOLDER: Final = "metrics"


def path(query: str) -> str:
    """The file of a query."""
    return f"{FOLDER}/{hashlib.sha256(query.encode()).hexdigest()[:16]}.json"


def text(query: str, answer: str) -> str:
    """What is written into it: the query, and the answer as it came."""
    return json.dumps({"query": query, "answer": json.loads(answer)}, indent=1) + "\n"


def recorded(files: Sequence[File], query: str) -> State[Each[Labels, Points]]:
    """What the snapshot holds of a query."""
    if not files:
        return Inapplicable("the snapshot holds no metrics of a Prometheus")
    file = next((each for each in files if each.path == path(query)), None)
    if file is None:
        return Unknown(Reason.NOT_ASKED, "the snapshot does not hold it", f"metrics {query}")
    try:
        return Known(metrics.parse(json.dumps(json.loads(file.text())["answer"])))
    except (Damaged, ValueError, KeyError, TypeError) as error:
        return Unknown(Reason.MALFORMED, str(error), file.path)
