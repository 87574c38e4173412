"""The human tables of `nvidia-smi` without arguments: memory and numbers of MIG devices, bus ids."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.detail import DeviceMemory
from gpuctl.nvidia.output import Said, Trouble, judged, readable, shortened
from gpuctl.nvidia.query import Process, bus

_GPU: Final = re.compile(r"^\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off)\s+\|\s+([0-9A-Fa-f]{8}:\S+)\s", re.MULTILINE)
_MEMORY: Final = re.compile(r"\|\s*(?:(\d+)MiB\s*/\s*(\d+)MiB|N/A)\s*\|")
_DEVICE: Final = re.compile(
    r"^\|\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+\|\s*(?:(\d+)MiB\s*/\s*(\d+)MiB)?\s*\|.*\|\s*$", re.MULTILINE
)
_PROCESS: Final = re.compile(
    r"^\|\s+(\d+)\s+(\d+|N/A)\s+(\d+|N/A)\s+(\d+)\s+\S+\s+(.+?)\s+(?:(\d+)MiB|N/A)\s*\|\s*$", re.MULTILINE
)
_FRAMED: Final = re.compile(r"^\s*(?:[|+].*[|+])?\s*$")
_DATE: Final = re.compile(r"^[A-Z]\w{2} \w{3}\s+\d+ [\d:]+ \d{4}\s*$")
_END: Final = re.compile(r"\+[-=+]+\+\s*\Z")


class TableGpu(msgspec.Struct, frozen=True):
    """One GPU of the first table. The name may be cut by `...`."""

    index: int
    name: str
    bus_id: str


class Table(msgspec.Struct, frozen=True):
    """The answer: GPUs, MIG devices by the index of their GPU, processes (their `gpu` is an index)."""

    gpus: tuple[TableGpu, ...] = ()
    devices: tuple[tuple[int, DeviceMemory], ...] = ()
    processes: tuple[Process, ...] = ()
    said: tuple[Said, ...] = ()


def parse_table(output: Output) -> Table:
    """Reads the tables, from R450 to R610."""
    text = readable(output)
    strays = [line for line in text.split("\n") if not _FRAMED.match(line) and not _DATE.match(line)]
    said = judged(strays, output)
    gpus = tuple(TableGpu(int(row[1]), row[2], bus(row[3])) for row in _GPU.finditer(text))
    devices = tuple(
        (int(row[1]), DeviceMemory(int(row[4]), int(row[2]), int(row[3]), _number(row[6]), _number(row[5])))
        for row in _DEVICE.finditer(text)
    )
    processes = tuple(
        Process(row[1], int(row[4]), row[5], _number(row[6]), _number(row[2]))
        for row in _PROCESS.finditer(text)
    )
    if "|" in text and not _END.search(text.rstrip()) and not said:
        said = (Said(Trouble.UNREADABLE, f"the table breaks off after: {shortened(text.rstrip()[-80:])}"),)
    if not ("|" in text or said):
        said = (Said(Trouble.UNREADABLE, "the answer is empty"),)
    return Table(gpus, devices, processes, said)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
