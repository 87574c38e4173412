"""The smallest change that would let a Workload in. An estimate: others may take what it frees first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.quantities import Amount, shown
from gpuctl.kueue.quota import NOTHING, Cell, Limits, Tree
from gpuctl.kueue.scene import Line

# The causes of which quota is the matter, and whether what is in use counts.
_BY_QUOTA = {
    Trouble.NEVER_FITS: False,
    Trouble.PEERS: False,
    Trouble.BORROWED_AWAY: True,
    Trouble.NO_PREEMPTION: True,
    Trouble.COHORT_EXHAUSTED: True,
    Trouble.SATURATED: True,
}


@dataclass(frozen=True, slots=True)
class Relief:
    """Changes that would each be enough: raise nominalQuota, or let the queue borrow more (None: no help)."""

    resource: str
    flavor: str
    raise_by: Amount
    borrow_by: Amount | None
    free_elsewhere: tuple[tuple[str, Amount], ...]
    borrow_to: Amount | None = None  # the limit that would be

    def sentence(self, queue: str) -> str:
        """`raise nominalQuota of nvidia.com/gpu (flavor h100) in ClusterQueue vision by 3, or …`."""
        by = shown(self.raise_by, self.resource)
        parts = [
            f"raise nominalQuota of {self.resource} (flavor {self.flavor}) in ClusterQueue {queue} by {by}"
        ]
        if self.borrow_by is not None:
            parts.append(
                f"raise its borrowingLimit by {shown(self.borrow_by, self.resource)}{self._by(queue)}"
            )
        free = ", ".join(
            f"{shown(each, self.resource)} are free in ClusterQueue {name}"
            for name, each in self.free_elsewhere
        )
        return " or ".join(parts) + (f"; {free}" if free else "") + " (estimate)"

    def _by(self, queue: str) -> str:
        """The runbook that raises it."""
        if self.borrow_to is None:
            return ""
        about = f"--flavor {self.flavor} --resource {self.resource}"
        limit = shown(self.borrow_to, self.resource)
        return f" (`gpuctl plan queue-limit {queue} {about} --borrowing-limit {limit}`)"


def relief(cause: Cause, line: Line) -> Relief | None:
    """The smallest changes that help; None where quota is not the matter. Raises NotKnown."""
    if cause.trouble not in _BY_QUOTA or not cause.missing:
        return None
    cell, tree = (cause.flavor, cause.resource), line.tree
    now = _BY_QUOTA[cause.trouble]
    more = _borrow(tree, line.name, cell, cause.asked, now=now)
    limit = tree.queue(line.name).limits.get(cell, NOTHING).borrowing
    return Relief(
        cause.resource,
        cause.flavor,
        raise_by=_raise(tree, line.name, cell, cause.asked, now=now),
        borrow_by=more,
        free_elsewhere=tuple(_free(line, cell)),
        borrow_to=None if more is None or limit is None else limit + more,
    )


def _raise(tree: Tree, queue: str, cell: Cell, asked: Amount, *, now: bool) -> Amount:
    """What is missing, unless the limits of a cohort take a part of the raise away."""
    missing = asked - _room(tree, queue, cell, now=now)
    limits = tree.queue(queue).limits.get(cell, NOTHING)
    raised = _with(tree, queue, cell, replace(limits, nominal=limits.nominal + missing))
    return missing + max(0, asked - _room(raised, queue, cell, now=now))


def _borrow(tree: Tree, queue: str, cell: Cell, asked: Amount, *, now: bool) -> Amount | None:
    """How much more it would have to borrow; None if no limit of its own is in the way."""
    limits = tree.queue(queue).limits.get(cell, NOTHING)
    if limits.borrowing is None or not tree.queue(queue).parent:
        return None
    open_ended = _with(tree, queue, cell, replace(limits, borrowing=None))
    if _room(open_ended, queue, cell, now=now) < asked:
        return None
    return asked - _room(tree, queue, cell, now=now)


def _room(tree: Tree, queue: str, cell: Cell, *, now: bool) -> Amount:
    room = tree.room(queue, cell)
    return room.free if now else room.most


def _with(tree: Tree, queue: str, cell: Cell, limits: Limits) -> Tree:
    return Tree(
        tuple(
            replace(each, limits={**each.limits, cell: limits}) if each.key == (True, queue) else each
            for each in tree.members
        )
    )


def _free(line: Line, cell: Cell) -> Iterator[tuple[str, Amount]]:
    """Queues that have some of their own left which nobody has borrowed, those with most first; three of
    them."""
    free = [(name, each) for name, each in line.tree.left(cell).items() if name != line.name]
    yield from sorted(free, key=lambda item: (-item[1], item[0]))[:3]
