"""A plan on a terminal: what would be done, to whom, what speaks against it, and how it is taken back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from gpuctl.report.plain import plain
from gpuctl.report.text import Canvas
from gpuctl.runbook.guard import Blocker
from gpuctl.runbook.owned import is_only_printed, to_be_applied
from gpuctl.runbook.plan import Plan, TargetPlan
from gpuctl.runbook.records import Bounds

_INDENT = 2
# Overrides that say nothing by themselves.
_WITH_WHAT = {
    "--outside-window": "--outside-window --reason WHY",
    "--max-evictions": "--max-evictions COUNT",
    "--grace-period": "--grace-period SECONDS",
}


def draw_plan(plan: Plan, back: str, on: Canvas) -> None:
    """Draws the plan of all targets. `back`: what undoing a run brings back."""
    several = len(plan.targets) > 1
    head = f"{plan.runbook} {plan.name}"
    if several:
        head += f": {len(plan.targets)} targets, {plan.max_unavailable} at once"
    on.line(Text(plain(head), style="bold"))
    on.line(_grey(f"cluster {plan.cluster.name}, planned by {plan.planner.user or plan.planner.host}"))
    for target in plan.targets:
        _draw_target(target, on, named=several)
    on.line("")
    on.line(f"undo: {plain(back)}")
    _draw_conclusion(plan, on)


def _draw_target(target: TargetPlan, on: Canvas, *, named: bool) -> None:
    on.line("")
    if named:
        on.line(Text(plain(target.target), style="bold"))
    for effect in target.effects:
        on.line(plain(effect), _INDENT)
    for note in target.notes:
        on.line(on.sign("info").append(plain(note)), _INDENT)
    if target.steps:
        on.line("steps:", _INDENT)
    for number, step in enumerate(target.steps, 1):
        until = ", until the end" if step.held else ""
        on.line(f"{number}. {plain(step.says)}{until} (at most {_time(step.seconds)})", 2 * _INDENT)
    for line in _bounds(target.bounds):
        on.line(plain(line), _INDENT)
    for blocker in target.overridden:
        on.line(
            on.sign("warning").append(plain(f"overridden by {blocker.override}: {blocker.message}")), _INDENT
        )
    for blocker in target.blockers:
        if blocker.guard != to_be_applied.id:
            _draw_blocker(blocker, on)


def _draw_blocker(blocker: Blocker, on: Canvas) -> None:
    on.line(on.sign("error").append(plain(blocker.message)), _INDENT)
    override = f"override: {blocker.override}" if blocker.override else "no override"
    rest = [f"guard {blocker.guard}, {override}"]
    rest += [f"see: {blocker.look}"] if blocker.look else []
    rest += [f"do: {blocker.remedy}"] if blocker.remedy else []
    for line in rest:
        on.line(_grey(line), 2 * _INDENT)


def _bounds(bounds: Bounds) -> Iterable[str]:
    if bounds.evictions:
        where = ", ".join(bounds.namespaces)
        owners = ", ".join(bounds.owner_kinds) or "no owner"
        budgets = f", under {', '.join(bounds.budgets)}" if bounds.budgets else ""
        yield f"at most {bounds.evictions} evictions, in {where}, of pods of {owners}{budgets}"


def _draw_conclusion(plan: Plan, on: Canvas) -> None:
    count = len(plan.blockers)
    if is_only_printed(plan):
        on.line(on.sign("pass").append("only printed; nothing was changed, and this plan can't be applied"))
    elif count:
        things = "1 thing speaks" if count == 1 else f"{count} things speak"
        on.line(on.sign("error").append(f"blocked: {things} against it; nothing was changed"))
        flags = _flags(plan.blockers)
        if flags:
            on.line(plain(f"with {' '.join(flags)} it could be applied, at your own risk"))
    else:
        until = f"{plan.valid_until:%Y-%m-%d %H:%M:%SZ}"
        on.line(on.sign("pass").append(f"can be applied until {until}; nothing was changed"))


def _flags(blockers: Sequence[Blocker]) -> list[str]:
    """The flags that would override all of them; empty where one has none."""
    if any(not each.override for each in blockers):
        return []
    return sorted({_WITH_WHAT.get(each.override, each.override) for each in blockers})


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 120 and seconds % 60 == 0 else f"{seconds:g} s"  # noqa: PLR2004


def _grey(text: str) -> Text:
    return Text(plain(text), style="dim")
