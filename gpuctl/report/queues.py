"""Queues: a table with a line for each, and one queue in full, with its cohort, its line and the causes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from gpuctl.facts.state import Known
from gpuctl.kueue.chain import first_broken
from gpuctl.kueue.picture import CellPicture, MemberPicture, QueuePicture, WaiterPicture, learned
from gpuctl.kueue.quantities import shown
from gpuctl.kueue.standing import age, span
from gpuctl.report.plain import plain
from gpuctl.report.table import print_table
from gpuctl.report.text import Canvas

WAITING: Final = 20  # Workloads of a line that are shown without being asked for
GAPS: Final = 5  # gaps below the table that are shown without being asked for
WIDTH: Final = 24  # characters of a bar
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_ASCII_SPARKS: Final = "_.-:=+*#"
_COLUMNS: Final = ("NAME", "COHORT", "PENDING", "ADMITTED", "ACTIVE", "OLDEST", "TREND 6H", "FREE", "CAUSE")


def draw_queues(queues: Sequence[QueuePicture], on: Canvas) -> None:
    """Draws a table of all queues, those with the oldest wait first."""
    ordered = sorted(queues, key=lambda each: (-each.past.oldest.total_seconds(), each.name))
    print_table(on.console, _COLUMNS, [_row(each, on) for each in ordered])
    gaps = list(dict.fromkeys(gap for each in ordered for gap in each.unknown))
    for gap in gaps[: None if on.verbose else GAPS]:
        on.line(on.sign("unknown").append(plain(gap)))
    if len(gaps) > GAPS and not on.verbose:
        on.line(f"and {len(gaps) - GAPS} gaps more (-v shows all)")


def _row(queue: QueuePicture, on: Canvas) -> list[str]:
    return [
        queue.name,
        queue.cohort or "-",
        str(queue.pending),
        str(queue.admitted),
        queue.active,
        span(queue.past.oldest) if queue.pending else "-",
        spark(queue.past.line, on),
        _free(queue),
        queue.cause or "-",
    ]


def spark(line: Sequence[int], on: Canvas) -> str:
    """A line of numbers in the height of one character; an empty line where nobody ever waited."""
    signs = _SPARKS if _can_draw(on) else _ASCII_SPARKS
    top = max(line, default=0)
    if not top:
        return signs[0] * min(len(line), 12)
    halves = [max(line[at : at + 2]) for at in range(0, len(line), 2)]
    return "".join(signs[each * (len(signs) - 1) // top] for each in halves)


def _can_draw(on: Canvas) -> bool:
    return "√" in on.glyphs.values()


def _free(queue: QueuePicture) -> str:
    if queue.cells is None:
        return "?"
    important = [each for each in queue.cells if each.important] or list(queue.cells)
    told = [f"{shown(each.free, each.resource)}/{_nominal(each)} {_short(each)}" for each in important]
    return ", ".join(told[:2]) + (f" (+{len(told) - 2})" if told[2:] else "") or "-"


def _nominal(cell: CellPicture) -> str:
    return shown(cell.nominal, cell.resource)


def _short(cell: CellPicture) -> str:
    return f"{cell.flavor}:{cell.resource.removeprefix('nvidia.com/')}"


def draw_queue(queue: QueuePicture, on: Canvas) -> None:
    """Draws one queue in full."""
    on.line(Text(_title(queue), style="bold"))
    _draw_past(queue, on)
    _draw_quota(queue, on)
    _draw_chains(queue, on)
    _draw_causes(queue, on)
    _draw_local_queues(queue, on)
    _draw_line(queue, on)
    for gap in queue.unknown:
        on.line(on.sign("unknown").append(plain(gap)))


def _title(queue: QueuePicture) -> str:
    parts = [
        f"ClusterQueue {queue.name}",
        f"cohort {queue.cohort}" if queue.cohort else "no cohort",
        queue.strategy,
        {"yes": "active", "no": "NOT ACTIVE"}.get(queue.active, queue.active),
        f"{queue.pending} pending, {queue.admitted} admitted",
    ]
    return plain("  ".join(parts))


def _draw_past(queue: QueuePicture, on: Canvas) -> None:
    past = queue.past
    on.line(f"past 6 h  {spark(past.line, on)}  {past.arrived} came, {past.admitted} got quota", indent=2)
    last = f"last admission {_ago(past.last_admission, queue.now)}"
    oldest = f"oldest waits for {span(past.oldest)}" if queue.pending else "nobody waits"
    on.line(f"{oldest}; {last}", indent=2)
    note = "of Workloads that still exist: before them the line may have been longer"
    on.line(Text(f"({note})", style="dim"), indent=2)


def _ago(at: datetime | None, now: datetime) -> str:
    return f"{span(age(at, now))} ago" if at else "unknown: none of those that exist was admitted"


def _draw_quota(queue: QueuePicture, on: Canvas) -> None:
    on.line("")
    if queue.cells is None:
        on.line(on.sign("unknown").append("quota is not known: its cohorts could not be read"))
        return
    for cell in queue.cells:
        on.line(Text(f"{plain(cell.flavor)}  {plain(cell.resource)}", style="bold"))
        for member in queue.tree or (MemberPicture(queue.name, 0, True, queue.cells),):
            _draw_member(member, cell, on, here=member.is_queue and member.name == queue.name)


def _draw_member(member: MemberPicture, of: CellPicture, on: Canvas, *, here: bool) -> None:
    (cell,) = [each for each in member.cells if (each.flavor, each.resource) == (of.flavor, of.resource)]
    what = "" if member.is_queue else "cohort "
    name = f"{'  ' * member.depth}{what}{member.name}"
    lends = f", borrowed {shown(cell.borrowed, cell.resource)}" if cell.borrowed else ""
    lends += f", lent {shown(cell.lent, cell.resource)}" if cell.lent else ""
    used, free = shown(cell.used, cell.resource), shown(cell.free, cell.resource)
    numbers = f"{used} of {_nominal(cell)}{lends}, free {free}"
    line = Text(f"{plain(name):<28} ").append(_bar(cell, on)).append(f" {numbers}")
    if here:
        line.append("  ◂" if _can_draw(on) else "  <", style="bold")
    on.line(line, indent=2)


def _bar(cell: CellPicture, on: Canvas) -> Text:
    """What is used of its own, what is lent, what is left, and beyond the edge what is borrowed."""
    used, lent, left, edge, more = "█▒░│▓" if _can_draw(on) else "#=-|+"
    whole = max(cell.nominal, cell.used, 1)
    own = _part(min(cell.used, cell.nominal), whole)
    borrowed = _part(cell.borrowed, whole)
    away = min(_part(cell.lent, whole), WIDTH - own - borrowed)
    bar = Text(edge).append(used * own, style="yellow").append(lent * away, style="cyan")
    bar.append(left * (WIDTH - own - away - borrowed), style="green").append(edge)
    return bar.append(more * borrowed, style="magenta") if borrowed else bar


def _part(amount: int, whole: int) -> int:
    return max(0, min(WIDTH, round(amount * WIDTH / whole)))


def _draw_chains(queue: QueuePicture, on: Canvas) -> None:
    """From flavor to pods, link by link; where the first one is broken, that is said."""
    chains = queue.chains
    if chains:
        on.line("")
        on.line(Text("from flavor to pods", style="bold"))
    arrow = " → " if _can_draw(on) else " -> "
    for links in chains:
        on.line(arrow.join(plain(each.text) for each in links), indent=2)
        broken = first_broken(links)
        if broken:
            on.line(on.sign("error").append(f"first broken link: {plain(broken)}"), indent=4)


def _draw_causes(queue: QueuePicture, on: Canvas) -> None:
    if queue.causes:
        on.line("")
        on.line(Text("why they wait", style="bold"))
    for cause in queue.causes:
        on.line(f"{cause.count:>5}  {plain(cause.text)}", indent=2)
        if cause.change:
            on.line(Text(f"would help: {plain(cause.change)}", style="dim"), indent=9)
    if queue.hurt and queue.hurt.asked:
        each = queue.hurt
        on.line(
            f"{shown(each.asked)} GPUs or slices are waited for, {shown(each.idle)} of the quota are idle, "
            f"{each.hours:.1f} GPU-hours waited so far (estimate)",
            indent=2,
        )


def _draw_local_queues(queue: QueuePicture, on: Canvas) -> None:
    if not queue.local_queues:
        return
    on.line("")
    rows = [
        [
            each.namespace,
            each.name,
            str(each.past.waiting),
            span(each.past.oldest) if each.past.waiting else "-",
            spark(each.past.line, on),
            str(each.past.arrived),
            str(each.past.admitted),
            _ago(each.past.last_admission, queue.now) if each.past.last_admission else "-",
        ]
        for each in queue.local_queues[: None if on.verbose else WAITING]
    ]
    headers = (
        "NAMESPACE",
        "LOCALQUEUE",
        "PENDING",
        "OLDEST",
        "TREND 6H",
        "CAME",
        "GOT QUOTA",
        "LAST ADMISSION",
    )
    print_table(on.console, headers, rows)


def _draw_line(queue: QueuePicture, on: Canvas) -> None:
    if not queue.waiting:
        return
    on.line("")
    waiting = queue.waiting
    rows = [_waiter(each) for each in waiting]
    shown_rows = rows if on.verbose else rows[:WAITING]
    headers = ("POSITION", "NAMESPACE", "NAME", "LOCALQUEUE", "PRIORITY", "WAITED", "ASKS FOR", "CAUSE")
    print_table(on.console, headers, shown_rows)
    if len(shown_rows) < len(rows):
        on.line(f"and {len(rows) - len(shown_rows)} more (-v shows all)")
    if any(each.estimate for each in waiting):
        why = "" if isinstance(queue.places, Known) else f"; the manager's own: {plain(str(queue.places))}"
        on.line(Text(f"(~ estimated from priority and age{why})", style="dim"), indent=2)


def _waiter(each: WaiterPicture) -> list[str]:
    return [
        f"~{each.place}" if each.estimate else str(each.place),
        each.namespace,
        each.name,
        each.local_queue,
        str(each.priority),
        span(each.waited),
        each.asks,
        each.cause or "not known",
    ]


def to_json(queues: Sequence[QueuePicture], gaps: Iterable[str]) -> str:
    """The same as JSON, ASCII only."""
    items = [{"name": each.name, **learned(each, whole=True)} for each in queues]
    told = {"apiVersion": "gpuctl.dev/v1", "kind": "QueueList", "items": items, "unknown": list(gaps)}
    return json.dumps(told, indent=2, default=_written) + "\n"


def _written(value: Any) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else str(value)
