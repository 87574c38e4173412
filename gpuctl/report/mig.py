"""GPUs as pictures: a table of kinds of nodes, then each GPU as a row of its slices, to scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace
from rich.text import Text

from gpuctl.audit.mask import masked_text
from gpuctl.nvidia.picture import GpuPicture, NodePicture, ProcessPicture, SlicePicture, offered
from gpuctl.report.plain import plain
from gpuctl.report.table import print_table
from gpuctl.report.text import Canvas

WIDTH: Final = 72  # characters for the memory slices of a GPU
PICTURES: Final = 8  # nodes that are drawn without being asked for
PROCESSES: Final = 4  # of one slice that are listed


@dataclass(frozen=True, slots=True)
class _Signs:
    """How a slice is filled: held, free, of unknown holder; memory in no slice; where a name is cut."""

    held: str
    free: str
    unknown: str
    unused: str
    edge: str
    cut: str


_DRAWN: Final = _Signs("█", "░", "▒", "·", "│", "…")
_ASCII: Final = _Signs("#", "-", "?", ".", "|", "~")
_STYLES: Final = {True: "yellow", False: "green", None: "cyan"}


def draw_nodes(nodes: Sequence[NodePicture], on: Canvas) -> None:
    """Draws a table with a line for each kind of node, then nodes: all of a few, of many one of each kind."""
    kinds = _kinds(nodes)
    print_table(
        on.console,
        ["NODES", "GPUS", "MODEL", "STRATEGY", "CONFIG", "STATE", "DEVICES", "OFFERS", "LAYOUT"],
        [_row(alike) for alike in kinds],
    )
    drawn = nodes if len(nodes) <= PICTURES or on.verbose else [alike[0] for alike in kinds]
    for node in drawn:
        on.line("")
        draw_node(node, on)
    if len(drawn) < len(nodes):
        on.line("")
        on.line(f"drawn: one of each kind, {len(drawn)} of {len(nodes)} nodes (-v draws all, NODE one)")


def _kinds(nodes: Sequence[NodePicture]) -> list[list[NodePicture]]:
    kinds: dict[object, list[NodePicture]] = {}
    for node in nodes:
        kinds.setdefault((node.kind, len(node.gpus), bool(node.unknown)), []).append(node)
    return sorted(kinds.values(), key=len, reverse=True)


def _row(alike: Sequence[NodePicture]) -> list[str]:
    first = alike[0]
    devices = [each for node in alike for gpu in node.gpus for each in gpu.slices]
    held = sum(each.held is True for each in devices)
    told = all(each.held is not None for each in devices)
    resources = ", ".join(
        f"{count}x {name.removeprefix('nvidia.com/')}" for name, count in offered(alike).items()
    )
    return [
        str(len(alike)),
        str(sum(len(node.gpus) for node in alike)) if first.gpus else "?",
        first.product or "?",
        first.strategy,
        first.config or "-",
        first.state or "-",
        (f"{held} of {len(devices)} held" if told else f"{len(devices)}, holders unknown")
        if devices
        else "?",
        resources or "nothing",
        f"not known: {first.unknown}" if first.unknown else first.layout,
    ]


def draw_node(node: NodePicture, on: Canvas) -> None:
    """Draws one node and its GPUs."""
    on.line(Text(_title(node), style="bold"))
    if node.labels:
        told = "  ".join(f"{name}={text}" for name, text in node.labels.items())
        on.line(Text(f"labels  {plain(told)}", style="dim"), indent=2)
    if node.change:
        on.line(Text(f"being changed: {plain(node.change)}", style="yellow"), indent=2)
    if node.unknown:
        on.line(on.sign("unknown").append(f"its GPUs are not known: {plain(node.unknown)}"), indent=2)
    for gpu in node.gpus:
        _draw_gpu(gpu, on)


def _title(node: NodePicture) -> str:
    parts = [
        node.name,
        f"strategy {node.strategy}",
        f"config {node.config} ({node.state or 'no state'})" if node.config else "",
        "" if node.sharing == "none" else f"shared by {node.sharing}",
        "" if node.ready else "not Ready",
        ", ".join(
            f"{node.allocatable.get(name, 0)} of {count} {name.removeprefix('nvidia.com/')}"
            for name, count in sorted(node.capacity.items())
            if count
        ),
    ]
    return plain("  ".join(part for part in parts if part))


def _draw_gpu(gpu: GpuPicture, on: Canvas) -> None:
    mode = f"MIG {gpu.mode.lower()}" if gpu.mode not in ("", "N/A") else ""
    pending = f"pending {gpu.pending}" if gpu.pending not in ("", gpu.mode) else ""
    head = "  ".join(
        part for part in (f"GPU {gpu.index}", gpu.model, gpu.bus_id, gpu.uuid, mode, pending) if part
    )
    on.line(plain(head), indent=2)
    signs = _DRAWN if _can_draw(on) else _ASCII
    placed = all(each.start >= 0 for each in gpu.slices)
    on.line(_bar(gpu, signs, placed=placed), indent=2)
    if gpu.slices and not placed:
        on.line(Text("(where they lie is not known: in the order of the devices)", style="dim"), indent=2)
    for number, each in enumerate(gpu.slices):
        on.line(_told(number, each), indent=4)
        _list_processes(each.processes, on)
    if gpu.processes:
        on.line(Text("on one of these slices, nothing tells which:", style="dim"), indent=4)
        _list_processes(gpu.processes, on)


def _list_processes(processes: Sequence[ProcessPicture], on: Canvas) -> None:
    for each in processes[:PROCESSES]:
        memory = "" if each.memory_mib is None else f"  {each.memory_mib} MiB"
        on.line(Text(plain(f"process {each.pid}  {masked_text(each.name)}{memory}"), style="dim"), indent=7)
    if len(processes) > PROCESSES:
        on.line(Text(f"and {len(processes) - PROCESSES} processes more", style="dim"), indent=7)


def _can_draw(on: Canvas) -> bool:
    return "√" in on.glyphs.values()


def _bar(gpu: GpuPicture, signs: _Signs, *, placed: bool) -> Text:
    """The memory of a GPU from its first slice to its last."""
    unit = max(4, WIDTH // gpu.slots)
    bar = Text(signs.edge)
    at = 0
    for each in sorted(gpu.slices, key=lambda each: each.start) if placed else gpu.slices:
        if placed and each.start > at:
            bar.append(_unused(each.start - at, unit, signs))
        bar.append(_filled(each, unit, signs)).append(signs.edge)
        at = each.start + each.size if placed else at + each.size
    if at < gpu.slots:
        bar.append(_unused(gpu.slots - at, unit, signs))
    return bar


def _unused(slots: int, unit: int, signs: _Signs) -> Text:
    return Text(signs.unused * (slots * unit - 1) + signs.edge, style="dim")


def _filled(each: SlicePicture, unit: int, signs: _Signs) -> Text:
    """A slice, as wide as its share, with its name in it if that fits."""
    width = each.size * unit - 1
    sign = {True: signs.held, False: signs.free, None: signs.unknown}[each.held]
    name = plain(each.name)
    text = f" {name} " if len(name) + 2 <= width else _cut(name, width, signs.cut)
    text = text.center(width, sign)
    return Text(text, style=_STYLES[each.held])


def _cut(name: str, width: int, mark: str) -> str:
    return name if len(name) <= width else f"{name[: width - len(mark)]}{mark}"


def _told(number: int, each: SlicePicture) -> Text:
    numbers = (
        ""
        if each.instance is None
        else f"GI {each.instance} CI {'-' if each.compute is None else each.compute}"
    )
    memory = "" if each.used_mib is None else f"{each.used_mib} of {each.total_mib} MiB"
    parts = [f"{number}", each.name, each.uuid, numbers, memory]
    line = Text(plain("  ".join(part for part in parts if part)))
    return line.append(f"  {plain(_holder(each))}", style=_STYLES[each.held])


def _holder(each: SlicePicture) -> str:
    if each.held is None:
        return "holder unknown"
    names = ", ".join(each.holders)
    said = " (as DCGM exporter says)" if each.told_by == "dcgm-exporter" else ""
    return f"{names}{said}" if each.held else "free"


class _Document(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    api_version: str = "gpuctl.dev/v1"
    kind: str = "MigView"
    nodes: tuple[NodePicture, ...]
    unknown: tuple[str, ...] = ()


def to_json(nodes: Sequence[NodePicture], unknown: Iterator[str]) -> str:
    """The same as JSON. ASCII only, so that no character of a cluster's strings reaches a terminal raw."""
    import json

    document = _Document(nodes=tuple(map(_masked, nodes)), unknown=tuple(unknown))
    return json.dumps(msgspec.to_builtins(document), indent=2) + "\n"


def _masked(node: NodePicture) -> NodePicture:
    """The node without secrets that processes may bear in their names."""
    return replace(node, gpus=tuple(map(_masked_gpu, node.gpus)))


def _masked_gpu(gpu: GpuPicture) -> GpuPicture:
    slices = tuple(replace(each, processes=_masked_names(each.processes)) for each in gpu.slices)
    return replace(gpu, slices=slices, processes=_masked_names(gpu.processes))


def _masked_names(processes: Sequence[ProcessPicture]) -> tuple[ProcessPicture, ...]:
    return tuple(replace(each, name=masked_text(each.name)) for each in processes)
