"""Quota as Kueue reckons it: ClusterQueues and Cohorts as a tree in which unused quota is lent.

The rules are those of Kueue's scheduler: of what a member has, `lendingLimit` may leave it; a member may take
`borrowingLimit` more than it has; a Cohort's own quota comes on top of its members'.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from gpuctl.kueue.objects import ClusterQueue, Cohort, ResourceGroup
from gpuctl.kueue.quantities import Amount, amount

Cell: TypeAlias = tuple[str, str]  # a flavor, and a resource in it


@dataclass(frozen=True, slots=True)
class Limits:
    """The quota of one cell, of its own. None: without limit."""

    nominal: Amount = 0
    borrowing: Amount | None = None
    lending: Amount | None = None


NOTHING = Limits()


@dataclass(frozen=True)
class Member:
    """A ClusterQueue or a Cohort in the tree. `used` is a queue's own reservation."""

    name: str
    parent: str = ""
    limits: Mapping[Cell, Limits] = field(default_factory=dict)
    used: Mapping[Cell, Amount] = field(default_factory=dict)
    is_queue: bool = True

    @property
    def key(self) -> tuple[bool, str]:
        """Queues and cohorts may bear the same name."""
        return self.is_queue, self.name


@dataclass(frozen=True)
class Room:
    """What a queue may take of a cell: at most, and now."""

    most: Amount
    free: Amount


@dataclass(frozen=True)
class Tree:
    """The members that can lend to each other. Cohorts that nobody wrote exist by being named."""

    members: tuple[Member, ...] = ()

    @cached_property
    def by_key(self) -> Mapping[tuple[bool, str], Member]:
        named = {each.parent for each in self.members if each.parent}
        written = {each.key: each for each in self.members}
        implied = {(False, name): Member(name, is_queue=False) for name in named}
        return {**implied, **written}

    @cached_property
    def children(self) -> Mapping[str, tuple[Member, ...]]:
        """The members of each cohort."""
        found: dict[str, list[Member]] = {}
        for member in self.by_key.values():
            if member.parent:
                found.setdefault(member.parent, []).append(member)
        return {name: tuple(members) for name, members in found.items()}

    @cached_property
    def looping(self) -> frozenset[str]:
        """The cohorts that are their own ancestors, or below one that is."""
        return frozenset(name for is_queue, name in self.by_key if not is_queue and self._loops(name))

    def loop(self, name: str) -> tuple[str, ...]:
        """The cohorts of the cycle that a cohort leads to, from the first by name; empty if there is none."""
        path: list[str] = []
        while name and name not in path:
            path.append(name)
            name = self.by_key[False, name].parent if (False, name) in self.by_key else ""
        if not name:
            return ()
        cycle = path[path.index(name) :]
        first = cycle.index(min(cycle))
        return (*cycle[first:], *cycle[:first])

    def _loops(self, name: str) -> bool:
        return bool(self.loop(name))

    def queue(self, name: str) -> Member:
        """A ClusterQueue; one that is not in the tree has no quota."""
        return self.by_key.get((True, name)) or Member(name)

    def room(self, queue: str, cell: Cell) -> Room:
        """What a ClusterQueue may take of a cell. In a cycle there is nothing to take."""
        member = self.queue(queue)
        if member.parent in self.looping:
            return Room(0, 0)
        return Room(self._most(member, cell), self._free(member, cell))

    def reserved(self, member: Member, cell: Cell) -> Amount:
        """What is taken through a member: a queue's own, of a cohort what its members borrow of it."""
        return self._tally(member, cell)[1]

    def has(self, member: Member, cell: Cell) -> Amount:
        """What a member has: its own quota, of a cohort with what its members lend it."""
        return self._tally(member, cell)[0]

    def borrowed(self, member: Member, cell: Cell) -> Amount:
        """What a member takes beyond what it has."""
        has, used = self._tally(member, cell)
        return max(0, used - has)

    def peers(self, queue: str) -> tuple[Member, ...]:
        """The other queues under the same root."""
        member = self.queue(queue)
        if not member.parent or member.parent in self.looping:
            return ()
        return tuple(each for each in self.below(self.root(member.parent)) if each.name != queue)

    def below(self, cohort: str) -> Iterator[Member]:
        """The queues of a cohort and of the cohorts in it."""
        for child in self.children.get(cohort, ()):
            if child.is_queue:
                yield child
            else:
                yield from self.below(child.name)

    def root(self, cohort: str) -> str:
        """The uppermost cohort."""
        parent = self.by_key[False, cohort].parent
        return self.root(parent) if parent else cohort

    def left(self, cell: Cell) -> Mapping[str, Amount]:
        """What queues have of a cell that neither they nor borrowers use, by queue; only where there is
        some."""
        if cell not in self._left:
            found = {
                member.name: min(
                    self.has(member, cell) - self.reserved(member, cell), self.room(member.name, cell).free
                )
                for member in self.members
                if member.is_queue and cell in member.limits
            }
            self._left[cell] = {name: each for name, each in found.items() if each > 0}
        return self._left[cell]

    @cached_property
    def _left(self) -> dict[Cell, Mapping[str, Amount]]:
        return {}

    def without(self, names: Collection[str]) -> Tree:
        """The tree that Kueue reckons with: inactive queues lend nothing."""
        return Tree(tuple(each for each in self.members if not (each.is_queue and each.name in names)))

    @cached_property
    def _tallies(self) -> dict[tuple[tuple[bool, str], Cell], tuple[Amount, Amount]]:
        return {}

    def _tally(self, member: Member, cell: Cell) -> tuple[Amount, Amount]:
        """What a member has, and what is taken through it."""
        key = (member.key, cell)
        if key not in self._tallies:
            self._tallies[key] = self._counted(member, cell)
        return self._tallies[key]

    def _counted(self, member: Member, cell: Cell) -> tuple[Amount, Amount]:
        has, used = member.limits.get(cell, NOTHING).nominal, member.used.get(cell, 0)
        for child in () if member.is_queue else self.children.get(member.name, ()):
            kept = self._kept(child, cell)
            child_has, child_used = self._tally(child, cell)
            has += child_has - kept
            used += max(0, child_used - kept)
        return has, used

    def _kept(self, member: Member, cell: Cell) -> Amount:
        """What a member never lends."""
        lending = member.limits.get(cell, NOTHING).lending
        return 0 if lending is None else max(0, self._tally(member, cell)[0] - lending)

    def _free(self, member: Member, cell: Cell) -> Amount:
        has, used = self._tally(member, cell)
        if not member.parent:
            return has - used
        kept = self._kept(member, cell)
        from_parent = self._free(self.by_key[False, member.parent], cell)
        borrowing = member.limits.get(cell, NOTHING).borrowing
        if borrowing is not None:
            from_parent = min(from_parent, has - kept - max(0, used - kept) + borrowing)
        return max(0, kept - used) + from_parent

    def _most(self, member: Member, cell: Cell) -> Amount:
        has, _ = self._tally(member, cell)
        if not member.parent:
            return has
        most = self._kept(member, cell) + self._most(self.by_key[False, member.parent], cell)
        borrowing = member.limits.get(cell, NOTHING).borrowing
        return most if borrowing is None else min(most, has + borrowing)


def limits(groups: Iterable[ResourceGroup]) -> dict[Cell, Limits]:
    """The quota that resource groups write down. Raises NotKnown for what is no quantity."""
    return {
        (flavor.name, quota.name): Limits(
            amount(quota.nominal_quota),
            None if quota.borrowing_limit is None else amount(quota.borrowing_limit),
            None if quota.lending_limit is None else amount(quota.lending_limit),
        )
        for group in groups
        for flavor in group.flavors
        for quota in flavor.resources
    }


def reserved(queue: ClusterQueue) -> dict[Cell, Amount]:
    """What the Workloads with quota hold of a queue, in Kueue's own count."""
    return {
        (flavor.name, use.name): amount(use.total)
        for flavor in queue.status.flavors_reservation
        for use in flavor.resources
    }


def tree(queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort]) -> Tree:
    """The tree of all queues and cohorts."""
    leaves = [
        Member(each.metadata.name, each.cohort, limits(each.spec.resource_groups), reserved(each))
        for each in queues
    ]
    inner = [
        Member(each.metadata.name, each.parent, limits(each.spec.resource_groups), is_queue=False)
        for each in cohorts
    ]
    return Tree((*leaves, *inner))


def cells(queue: ClusterQueue) -> Sequence[Cell]:
    """The cells a queue gives out, in the order in which Kueue tries them."""
    return [
        (flavor.name, quota.name)
        for group in queue.spec.resource_groups
        for flavor in group.flavors
        for quota in flavor.resources
    ]
