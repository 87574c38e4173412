"""`nvidia-smi --query-gpu` and `--query-compute-apps`: a line per GPU or process, columns by their header."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.output import Said, Trouble, judged, readable, shortened, too_long

GPU_COLUMNS: Final = (
    "index",
    "uuid",
    "name",
    "mig.mode.current",
    "mig.mode.pending",
    "memory.used",
    "memory.total",
    "pci.bus_id",
)
ASKED: Final = (*GPU_COLUMNS, "pci.device_id")
PROCESS_COLUMNS: Final = ("gpu_uuid", "pid", "process_name", "used_memory")
_HEADER: Final = re.compile(r"\w+(?:\.\w+)*(?: \[\w+\])?(?:, \w+(?:\.\w+)*(?: \[\w+\])?)*")
_MISSING: Final = re.compile(r"\[.*\]|N/A|")
_MODES: Final = ("Enabled", "Disabled", "N/A", "")
_BUS: Final = re.compile(r"(?:[0-9A-Fa-f]{4}|[0-9A-Fa-f]{8}):[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")


class GpuRow(msgspec.Struct, frozen=True):
    """One GPU. What nvidia-smi puts in brackets is not known: empty, or None for numbers.

    `mode` and `pending` are Enabled, Disabled, or N/A where the GPU knows no MIG.
    """

    index: int | None = None
    uuid: str = ""
    name: str = ""
    mode: str = ""
    pending: str = ""
    memory_used: int | None = None
    memory_total: int | None = None
    bus_id: str = ""
    device_id: str = ""
    compute_mode: str = ""


class GpuRows(msgspec.Struct, frozen=True):
    """The answer to `--query-gpu`."""

    found: tuple[GpuRow, ...] = ()
    said: tuple[Said, ...] = ()


class Process(msgspec.Struct, frozen=True):
    """A process on a GPU. `instance` is the number of the GPU instance it is on, where that is told."""

    gpu: str
    pid: int
    name: str = ""
    memory: int | None = None
    instance: int | None = None


class Processes(msgspec.Struct, frozen=True):
    """The answer to `--query-compute-apps`."""

    found: tuple[Process, ...] = ()
    said: tuple[Said, ...] = ()


def bus(text: str) -> str:
    """A PCI address in one spelling: `0000:1b:00.0`; empty if it is none."""
    if not _BUS.fullmatch(text.strip()):
        return ""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def parse_gpus(output: Output) -> GpuRows:
    """Reads the answer to `--query-gpu … --format=csv`, with a header or without, with units or without."""
    rows, said = _table(output, GPU_COLUMNS)
    found = [_gpu(row) for row in rows]
    addresses = [row.get("pci.bus_id", "") for row in rows]
    if any(_told(each) and not bus(each) for each in addresses):
        said = (*said, Said(Trouble.UNREADABLE, f"no PCI address: {shortened(', '.join(addresses))}"))
    bad = [
        each for each in found if not (each.uuid.startswith("GPU-") or each.index is not None or each.bus_id)
    ]
    if bad:
        said = (*said, Said(Trouble.UNREADABLE, "a row names neither index nor UUID nor bus id"))
    if any(each.mode not in _MODES or each.pending not in _MODES for each in found):
        said = (*said, Said(Trouble.UNREADABLE, "the columns are others than those that were asked for"))
        return GpuRows((), said)
    if len({(each.index, each.uuid, each.bus_id) for each in found}) < len(found):
        said = (*said, Said(Trouble.UNREADABLE, "a GPU is listed twice"))
    return GpuRows(tuple(each for each in found if each not in bad), said)


def parse_processes(output: Output) -> Processes:
    """Reads the answer to `--query-compute-apps`; none is a regular answer."""
    rows, said = _table(output, PROCESS_COLUMNS, may_be_empty=True)
    odd = [row for row in rows if not _is_process(row)]
    if odd:
        said = (*said, Said(Trouble.UNREADABLE, f"no process: {shortened(', '.join(odd[0].values()))}"))
    return Processes(tuple(_process(row) for row in rows if _is_process(row)), said)


def _is_process(row: Mapping[str, str]) -> bool:
    return _mib(row.get("pid", "")) is not None and row.get("gpu_uuid", "").startswith("GPU-")


def _process(row: Mapping[str, str]) -> Process:
    return Process(
        gpu=row["gpu_uuid"],
        pid=int(row["pid"]),
        name=row.get("process_name", ""),
        memory=_mib(row.get("used_memory", row.get("used_gpu_memory", ""))),  # asked for and printed
    )


def _gpu(row: Mapping[str, str]) -> GpuRow:
    return GpuRow(
        index=_mib(row.get("index", "")),
        uuid=_told(row.get("uuid", "")),
        name=_told(row.get("name", "")),
        mode=_mode(row.get("mig.mode.current", "")),
        pending=_mode(row.get("mig.mode.pending", "")),
        memory_used=_mib(row.get("memory.used", "")),
        memory_total=_mib(row.get("memory.total", "")),
        bus_id=bus(row.get("pci.bus_id", "")),
        device_id=_told(row.get("pci.device_id", "")).lower(),
        compute_mode=_told(row.get("compute_mode", "")),
    )


def _table(
    output: Output, columns: Sequence[str], *, may_be_empty: bool = False
) -> tuple[list[dict[str, str]], tuple[Said, ...]]:
    text = readable(output)
    rows: list[dict[str, str]] = []
    strays: list[str] = []
    for line in text.split("\n"):
        header = _header(line, columns)
        if header:
            columns = header
        elif line.strip():
            fields = _fields(line, columns)
            if fields is None or line.startswith("# "):
                strays.append(line)
            else:
                rows.append(fields)
    said = (*too_long(text), *judged(strays, output))
    if not rows and not said and not may_be_empty:
        said = (Said(Trouble.UNREADABLE, "the answer is empty"),)
    return rows, said


def _header(line: str, columns: Sequence[str]) -> tuple[str, ...] | None:
    """The columns that a header names; units in brackets are left off."""
    if not _HEADER.fullmatch(line.strip()):
        return None
    names = tuple(name.partition(" [")[0] for name in line.strip().split(", "))
    known = {*columns, *ASKED, "compute_mode"}
    return names if any(name in known for name in names) else None


def _fields(line: str, columns: Sequence[str]) -> dict[str, str] | None:
    """The fields of a line. A name with a comma takes what is left over."""
    parts = [part.strip() for part in line.split(",")]
    over = len(parts) - len(columns)
    named = next((place for place, name in enumerate(columns) if name in ("name", "process_name")), None)
    if over > 0 and named is not None:
        parts = [*parts[:named], ", ".join(parts[named : named + over + 1]), *parts[named + over + 1 :]]
    return dict(zip(columns, parts, strict=True)) if len(parts) == len(columns) else None


def _told(text: str) -> str:
    return "" if _MISSING.fullmatch(text) else text


def _mode(text: str) -> str:
    """Enabled, Disabled or N/A; anything else in brackets is not known."""
    return "N/A" if text in ("[N/A]", "N/A", "[Not Supported]") else _told(text)


def _mib(text: str) -> int | None:
    number = text.removesuffix(" MiB")
    return int(number) if number.isdecimal() and number.isascii() else None


def parse_pci(output: Output) -> tuple[str, ...]:
    """The addresses of NVIDIA's display and 3D controllers, from `lspci -Dn -d 10de:`."""
    return tuple(_graphics(readable(output)))


def _graphics(text: str) -> Iterator[str]:
    for found in re.finditer(
        r"^(\S+) (?:Class )?\"?(030[02])[0-9a-f]{0,2}\"?:? \"?10de:", text, re.MULTILINE
    ):
        if bus(found[1]):
            yield bus(found[1])


def shown(row: GpuRow) -> str:
    """A GPU as evidence."""
    return shortened(f"{row.index}, {row.uuid}, {row.name}, {row.mode}, {row.pending}")
