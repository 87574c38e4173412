"""The human tables of `nvidia-smi` without arguments: memory and numbers of MIG devices, modes, bus ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.detail import Detail, DetailedGpu, DeviceMemory, parse_detail
from gpuctl.nvidia.output import Said, Trouble, judged, readable, shortened
from gpuctl.nvidia.query import Process, bus

_GPU: Final = re.compile(r"\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off)\s+\|\s+([0-9A-Fa-f]{8}:\S+)\s.*\|\s*")
_DEVICE: Final = re.compile(
    r"\|\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+\|\s*(?:(\d+)MiB\s*/\s*(\d+)MiB)?\s*\|.*\|\s*"
)
_PROCESS: Final = re.compile(
    r"\|\s+(\d+)\s+(?:(\d+|N/A)\s+(\d+|N/A)\s+)?(\d+)\s+[A-Z+]+\s+(.+?)\s+(?:(\d+)MiB|N/A)\s*\|\s*"
)
_ROW: Final = re.compile(r"\|\s+\d+\s")
_USED: Final = re.compile(r"\|[^|]*\|\s*(\d+)MiB\s*/\s*(\d+)MiB\s*\|.*\|\s*")
_MODE: Final = re.compile(r"\|\s*\|\s*\|\s*(Enabled|Disabled|N/A)(\*?)\s*\|\s*")
_FRAMED: Final = re.compile(r"^\s*(?:[|+].*[|+])?\s*$")
_DATE: Final = re.compile(r"^[A-Z]\w{2} \w{3}\s+\d+ [\d:]+ \d{4}\s*$")
_END: Final = re.compile(r"\+[-=+]+\+\s*\Z")
_OTHER: Final = {"Enabled": "Disabled", "Disabled": "Enabled"}


class TableGpu(msgspec.Struct, frozen=True):
    """One GPU of the first table. The name may be cut by `...`; memory in MiB, None if not told."""

    index: int
    name: str
    bus_id: str
    mode: str = ""
    pending: str = ""
    memory_used: int | None = None
    memory_total: int | None = None


class Table(msgspec.Struct, frozen=True):
    """The answer: GPUs, MIG devices by the index of their GPU, processes (their `gpu` is an index)."""

    gpus: tuple[TableGpu, ...] = ()
    devices: tuple[tuple[int, DeviceMemory], ...] = ()
    processes: tuple[Process, ...] = ()
    said: tuple[Said, ...] = ()


def parse_table(output: Output) -> Table:
    """Reads the tables, from R450 to R610."""
    text = readable(output)
    gpus: list[TableGpu] = []
    devices: list[tuple[int, DeviceMemory]] = []
    processes: list[Process] = []
    strays: list[str] = []
    for line in text.split("\n"):
        if row := _GPU.fullmatch(line):
            gpus.append(TableGpu(int(row[1]), row[2], bus(row[3])))
        elif row := _DEVICE.fullmatch(line):
            memory = DeviceMemory(int(row[4]), int(row[2]), int(row[3]), _number(row[6]), _number(row[5]))
            devices.append((int(row[1]), memory))
        elif row := _PROCESS.fullmatch(line):
            processes.append(Process(row[1], int(row[4]), row[5], _number(row[6]), _number(row[2])))
        elif _ROW.match(line) or not (_FRAMED.match(line) or _DATE.match(line)):
            strays.append(line)
        elif gpus and not devices:
            gpus[-1] = _continued(gpus[-1], line)
    said = judged(strays, output)
    if "|" in text and not _END.search(text.rstrip()) and not said:
        said = (Said(Trouble.UNREADABLE, f"the table breaks off after: {shortened(text.rstrip()[-80:])}"),)
    if not ("|" in text or said):
        said = (Said(Trouble.UNREADABLE, "the answer is empty"),)
    return Table(tuple(gpus), tuple(devices), tuple(processes), said)


def _continued(gpu: TableGpu, line: str) -> TableGpu:
    """The GPU with what the second and third line of its row tell. `Enabled*`: the other mode is pending."""
    if gpu.memory_total is None and (used := _USED.fullmatch(line)):
        return msgspec.structs.replace(gpu, memory_used=int(used[1]), memory_total=int(used[2]))
    if not gpu.mode and (mode := _MODE.fullmatch(line)):
        pending = _OTHER.get(mode[1], "") if mode[2] else mode[1]
        return msgspec.structs.replace(gpu, mode=mode[1], pending=pending)
    return gpu


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def parse_account(output: Output) -> Detail:
    """Reads the answer to `nvidia-smi -q -x`; where people kept the human tables in its place, those."""
    text = readable(output)
    return parse_detail(output) if "<" in text or "|" not in text else _detail(parse_table(output))


def _detail(table: Table) -> Detail:
    gpus = tuple(
        DetailedGpu(
            bus_id=gpu.bus_id,
            index=gpu.index,
            mode=gpu.mode,
            pending=gpu.pending,
            memory_total=gpu.memory_total,
            memory_used=gpu.memory_used,
            devices=tuple(device for index, device in table.devices if index == gpu.index),
            processes=tuple(each for each in table.processes if each.gpu == str(gpu.index)),
        )
        for gpu in table.gpus
    )
    return Detail(gpus, said=table.said or tuple(_astray(table)))


def _astray(table: Table) -> Iterator[Said]:
    """Rows of GPUs that the table does not list: its beginning is missing."""
    listed = {str(gpu.index) for gpu in table.gpus}
    named = (*(str(index) for index, _ in table.devices), *(each.gpu for each in table.processes))
    others = [each for each in dict.fromkeys(named) if each not in listed]
    if others:
        yield Said(Trouble.UNREADABLE, f"rows of GPUs that the table does not list: {', '.join(others)}")
