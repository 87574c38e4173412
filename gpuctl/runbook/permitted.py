"""What a run will look at in the end, tried before it begins: else it would change something and be stuck."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.audit.finding import Finding
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, Reason, State, Unknown
from gpuctl.runbook.guard import blocks
from gpuctl.runbook.owned import only_printed


def not_permitted(
    read: State[Each[Any, Any]], target: Ref, book: str, options: Mapping[str, Any], *, says: str
) -> Iterator[Finding]:
    """Blocks where a permission is missing for what a runbook looks at in the end. `says`: what could not be
    seen. For the patch alone it does not matter."""
    lacking = _forbidden(read)
    if lacking and not only_printed(options):
        yield blocks(
            target,
            f"{says}: {lacking}",
            look=f"gpuctl can-i --for {book}",
            remedy=f"gpuctl rbac --for {book} prints a role with it",
        )


def _forbidden(read: State[Each[Any, Any]]) -> str:
    """Which permission a read lacks, in words; empty if it lacks none, whatever else is wrong with it."""
    gaps = read.value.gaps() if isinstance(read, Known) else [read]
    lacking = (each for each in gaps if isinstance(each, Unknown) and each.reason is Reason.FORBIDDEN)
    return str(next(lacking, ""))
