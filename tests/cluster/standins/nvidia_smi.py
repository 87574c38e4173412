#!/usr/bin/env -S python3 -I -S
"""nvidia-smi as a stand-in: answers from a JSON state file, in the layout of the real program.

The state file is named by $NVIDIA_SMI_STATE; tests/cluster/standins/state.py writes it. One file, the
standard library only and few imports: this script is copied onto hosts and started for every probe. Layouts
differ between driver releases; the classes R450 to R610 bear the differences that are known.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Json = dict[str, Any]

STATE = "/var/lib/gpuctl-standin/nvidia-smi.json"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
NOT_FOUND = 6


class Stop(Exception):
    """Ends the run with a text and an exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


# --- layouts of the driver releases -------------------------------------------------------------------------


USE = " {utilization:>7}{mode:>13} |"  # the last column of the second line of each GPU


class R580:
    """Driver 580 to 595; the others are described by what differs."""

    columns = (41, 24, 22)  # of the human table, without their bars
    banner = "| NVIDIA-SMI {driver:<23}Driver Version: {driver:<15}CUDA Version: {cuda:<9}|"
    banner_edge = "+"
    titles = (
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
    )
    name = 27
    first = "| {index:>3}  {name:<27}    {persistence:<4}|   {bus} Off | {ecc:>20} |"
    second = "| N/A  {temperature:>3}C    P0 {power:>14}W / {limit:>4}W | {memory:>22} |" + USE
    no_memory = "N/A  "
    memory = "{used:>7}MiB / {total:>6}MiB"
    gap = ""
    mig_titles = (
        "| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |",
        "|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |",
        "|                  |                                  |        ECC|                       |",
    )
    mig_memory = "{used:>16}MiB / {total:>5}MiB    "
    process_name = 36
    process_pid = 17
    lgi_name = 18
    lgi_pad = 5
    lgip_name = 16
    lgip_tail = ""
    placements_tail = ""
    with_ci_placement = True
    not_found = "."
    profiles_without_mig = True  # -lgip answers while MIG is off everywhere
    dtd = "v13"

    def mig_line(self, device: int, ci: Json, _path: str) -> str:
        """A MIG device in the output of -L."""
        return f"  MIG {ci['name']:<12}Device {device:>2}: (UUID: {ci['uuid']})"

    def lgi_id(self, profile_id: int) -> str:
        """The column of the profile's number in -lgi."""
        return f"{profile_id:>2}"


class R610(R580):
    """The banner speaks of kernel-mode and user-mode drivers."""

    banner = "| NVIDIA-SMI {driver:<23}KMD Version: {driver:<14}CUDA UMD Version: {cuda:<9}|"


class R535(R580):
    """Drivers 470 to 545."""

    columns = (41, 22, 22)
    banner = "| NVIDIA-SMI {driver:<23}Driver Version: {driver:<13}CUDA Version: {cuda:<9}|"
    banner_edge = "|"
    titles = (
        "| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                      |               MIG M. |",
    )
    first = "| {index:>3}  {name:<27}    {persistence:<4}| {bus} Off | {ecc:>20} |"
    second = "| N/A  {temperature:>3}C    P0 {power:>15}W / {limit:>3}W | {memory:>20} |" + USE
    no_memory = "N/A"
    memory = "{used:>6}MiB / {total:>5}MiB"
    mig_titles = (
        "| GPU  GI  CI  MIG |                   Memory-Usage |        Vol|      Shared           |",
        "|      ID  ID  Dev |                     BAR1-Usage | SM     Unc| CE ENC DEC OFA JPG    |",
        "|                  |                                |        ECC|                       |",
    )
    mig_memory = "{used:>16}MiB / {total:>5}MiB  "
    process_name = 40
    process_pid = 11
    lgi_name = 16
    lgi_pad = 3
    lgip_name = 14
    not_found = ": Not Found"
    profiles_without_mig = False
    dtd = "v12"


class R570(R580):
    """Drivers 550 to 575: the human table of R580, the rest of before."""

    lgi_name = 16
    lgi_pad = 3
    lgip_name = 14
    dtd = "v12"


class R450(R535):
    """Drivers 450 and 460: MIG devices are named by their GPU and instances."""

    columns = (31, 22, 22)
    banner = "| NVIDIA-SMI {driver:<13}Driver Version: {driver:<13}CUDA Version: {cuda:<9}|"
    titles = (
        "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |",
        "|                               |                      |               MIG M. |",
    )
    name = 18
    first = "| {index:>3}  {name:<18}  {persistence:<4} | {bus} Off | {ecc:>20} |"
    second = "| N/A  {temperature:>3}C    P0 {power:>5}W / {limit:>3}W | {memory:>20} |" + USE
    gap = " " * 79
    mig_titles = (
        "| GPU  GI  CI  MIG |         Memory-Usage |        Vol|         Shared        |",
        "|      ID  ID  Dev |                      | SM     Unc| CE  ENC  DEC  OFA  JPG|",
        "|                  |                      |        ECC|                       |",
    )
    mig_memory = "{used:>7}MiB / {total:>5}MiB "
    process_name = 30
    lgi_name = 14
    lgi_pad = 0
    lgip_name = 11
    lgip_tail = "  "
    placements_tail = "  "
    with_ci_placement = False
    not_found = ""
    dtd = "v11"

    def mig_line(self, device: int, ci: Json, path: str) -> str:
        """Before R470 the name is not padded and the identifier tells the instances."""
        return f"  MIG {ci['name']} Device {device}: (UUID: MIG-{path})"

    def lgi_id(self, profile_id: int) -> str:
        """Before R470 the number is not padded."""
        return str(profile_id)


def layout_of(driver: str) -> R580:
    """The layout of a driver version."""
    release = int(driver.partition(".")[0])
    for first, layout in ((600, R610), (580, R580), (550, R570), (470, R535)):
        if release >= first:
            return layout()
    return R450()


# --- the state ----------------------------------------------------------------------------------------------


class Machine:
    """The state file, and what follows from it."""

    def __init__(self, state: Json) -> None:
        self.state = state
        self.layout = layout_of(state["driver"])
        self.gpus: list[Json] = [gpu for gpu in state["gpus"] if not gpu["lost"]]
        self.processes: list[Json] = state["processes"]

    def select(self, wanted: str | None) -> None:
        """Keep the GPUs named by -i: index, UUID or bus address."""
        if wanted is not None:
            names = wanted.split(",")
            self.gpus = [gpu for gpu in self.gpus if names_of(gpu) & set(names)]
        if not self.gpus:
            raise Stop("No devices were found\n", NOT_FOUND)

    def when(self) -> str:
        """The time as the human table shows it."""
        return str(self.state["timestamp"] or time.asctime())

    def processes_of(self, gpu: Json) -> list[Json]:
        """The processes that hold a GPU."""
        return [process for process in self.processes if process["gpu"] == gpu["index"]]


def names_of(gpu: Json) -> set[str]:
    """The names by which -i takes a GPU."""
    return {str(gpu["index"]), gpu["uuid"], gpu["bus_id"], gpu["bus_id"][4:]}


def mig_devices(gpu: Json) -> list[tuple[int, Json, Json]]:
    """Index, GPU instance and compute instance: the order of -L is that of the instances' numbers."""
    pairs = [(gi, ci) for gi in gpu["instances"] for ci in gi["compute_instances"]]
    pairs.sort(key=lambda pair: (pair[0]["id"], pair[1]["id"]))
    return [(index, gi, ci) for index, (gi, ci) in enumerate(pairs)]


def in_mig_mode(gpu: Json) -> bool:
    """Whether the mode is on now."""
    return bool(gpu["mig_current"] == "Enabled")


# --- -L and the CSV queries ---------------------------------------------------------------------------------


def list_gpus(machine: Machine) -> str:
    """The answer to -L."""
    lines = []
    for gpu in machine.gpus:
        lines.append(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
        for index, gi, ci in mig_devices(gpu):
            path = f"{gpu['uuid']}/{gi['id']}/{ci['id']}"
            lines.append(machine.layout.mig_line(index, ci, path))
    return text(lines)


def text(lines: list[str]) -> str:
    """Lines as a program prints them."""
    return "".join(f"{line}\n" for line in lines)


def unless_mig(gpu: Json, value: Any) -> Any:
    """What cannot be told of a GPU in MIG mode."""
    return None if in_mig_mode(gpu) else value


def decimal(value: float | None) -> str | None:
    """Power with two places."""
    return None if value is None else f"{value:.2f}"


def free_memory(gpu: Json) -> int | None:
    """What is neither reserved nor used."""
    if gpu["memory_used"] is None:
        return None
    return int(gpu["memory_total"] - gpu["memory_reserved"] - gpu["memory_used"])


# Each is a title, a unit and how to find the value.
GPU_FIELDS: dict[str, tuple[str, str, Callable[[Json], Any]]] = {
    "index": ("index", "", lambda gpu: gpu["index"]),
    "uuid": ("uuid", "", lambda gpu: gpu["uuid"]),
    "name": ("name", "", lambda gpu: gpu["name"]),
    "serial": ("serial", "", lambda gpu: gpu["serial"]),
    "pstate": ("pstate", "", lambda _: "P0"),
    "compute_mode": ("compute_mode", "", lambda gpu: gpu["compute_mode"]),
    "persistence_mode": ("persistence_mode", "", lambda gpu: "Enabled" if gpu["persistence"] else "Disabled"),
    "mig.mode.current": ("mig.mode.current", "", lambda gpu: gpu["mig_current"]),
    "mig.mode.pending": ("mig.mode.pending", "", lambda gpu: gpu["mig_pending"]),
    "pci.bus_id": ("pci.bus_id", "", lambda gpu: gpu["bus_id"]),
    "pci.device_id": ("pci.device_id", "", lambda gpu: f"0x{gpu['device_id']}"),
    "memory.total": ("memory.total", "MiB", lambda gpu: gpu["memory_total"]),
    "memory.reserved": ("memory.reserved", "MiB", lambda gpu: gpu["memory_reserved"]),
    "memory.used": ("memory.used", "MiB", lambda gpu: gpu["memory_used"]),
    "memory.free": ("memory.free", "MiB", free_memory),
    "temperature.gpu": ("temperature.gpu", "", lambda gpu: gpu["temperature"]),
    "utilization.gpu": ("utilization.gpu", "%", lambda gpu: unless_mig(gpu, gpu["utilization"])),
    "power.draw": ("power.draw", "W", lambda gpu: decimal(gpu["power"])),
    "power.limit": ("power.limit", "W", lambda gpu: decimal(gpu["power_limit"])),
    "ecc.errors.uncorrected.volatile.total": (
        "ecc.errors.uncorrected.volatile.total",
        "",
        lambda gpu: gpu["ecc"],
    ),
}
PROCESS_FIELDS: dict[str, tuple[str, str, Callable[[Json], Any]]] = {
    "gpu_uuid": ("gpu_uuid", "", lambda process: process["of"]["uuid"]),
    "gpu_name": ("gpu_name", "", lambda process: process["of"]["name"]),
    "gpu_bus_id": ("gpu_bus_id", "", lambda process: process["of"]["bus_id"]),
    "gpu_serial": ("gpu_serial", "", lambda process: process["of"]["serial"]),
    "pid": ("pid", "", lambda process: process["pid"]),
    "process_name": ("process_name", "", lambda process: process["name"]),
    "used_gpu_memory": ("used_gpu_memory", "MiB", lambda process: process["memory"]),
}
ALIASES = {
    "gpu_uuid": "uuid",
    "gpu_name": "name",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "used_memory": "used_gpu_memory",
}


def query(
    rows: list[Json], fields: dict[str, tuple[str, str, Callable[[Json], Any]]], wanted: str, form: str
) -> str:
    """CSV, as --format asks."""
    options = form.split(",")
    chosen = [field_of(fields, name.strip()) for name in wanted.split(",")]
    lines = [] if "noheader" in options else [", ".join(f"{t} [{u}]" if u else t for t, u, _ in chosen)]
    lines += [", ".join(cell(value(row), unit, options) for _, unit, value in chosen) for row in rows]
    return text(lines)


def field_of(
    fields: dict[str, tuple[str, str, Callable[[Json], Any]]], name: str
) -> tuple[str, str, Callable[[Json], Any]]:
    """A field by any of its names."""
    field = fields.get(name) or fields.get(ALIASES.get(name, ""))
    if field is None:
        raise Stop(f'Field "{name}" is not a valid field to query.\n\n', 2)
    return field


def cell(value: Any, unit: str, options: list[str]) -> str:
    """One value of a CSV line."""
    if value is None or value == "N/A":
        return "[N/A]"
    return f"{value} {unit}" if unit and "nounits" not in options else str(value)


def query_gpus(machine: Machine, wanted: str, form: str) -> str:
    """The answer to --query-gpu."""
    return query(with_constants(machine), GPU_FIELDS | constants(machine), wanted, form)


def with_constants(machine: Machine) -> list[Json]:
    """GPUs, each with what all of them share."""
    shared = {"driver": machine.state["driver"], "count": len(machine.gpus), "when": machine.when()}
    return [gpu | shared for gpu in machine.gpus]


def constants(_: Machine) -> dict[str, tuple[str, str, Callable[[Json], Any]]]:
    """Fields whose value is the machine's."""
    return {
        "driver_version": ("driver_version", "", lambda gpu: gpu["driver"]),
        "count": ("count", "", lambda gpu: gpu["count"]),
        "timestamp": ("timestamp", "", lambda gpu: gpu["when"]),
    }


def query_processes(machine: Machine, wanted: str, form: str) -> str:
    """The answer to --query-compute-apps: parents only, whatever instance a process holds."""
    rows = [process | {"of": gpu} for gpu in machine.gpus for process in machine.processes_of(gpu)]
    return query(rows, PROCESS_FIELDS, wanted, form)


# --- nvidia-smi mig -----------------------------------------------------------------------------------------


def boxed(titles: list[str], rows: list[str], tail: str = "") -> str:
    """A table of `nvidia-smi mig`; a rule under each row."""
    width = len(titles[0]) - 2
    rule = f"+{'-' * width}+"
    lines = [rule, *titles, f"|{'=' * width}|"]
    for row in rows:
        lines += [*row.split("\n"), rule]
    return text([line + tail for line in lines])


def enabled(machine: Machine) -> list[Json]:
    """The GPUs in MIG mode."""
    gpus = [gpu for gpu in machine.gpus if in_mig_mode(gpu)]
    if not gpus:
        raise Stop("No MIG-enabled devices found.\n", NOT_FOUND)
    return gpus


def list_instances(machine: Machine) -> str:
    """The answer to mig -lgi, in the order in which the instances were made."""
    layout = machine.layout
    pad = " " * layout.lgi_pad
    titles = [
        f"| GPU instances:                                     {pad}|",
        f"| GPU   Name          {pad}Profile  Instance   Placement  |",
        f"|                       {pad}ID       ID       Start:Size |",
    ]
    rows = [lgi_row(layout, gpu, gi, len(titles[0])) for gpu in enabled(machine) for gi in gpu["instances"]]
    if not rows:
        raise Stop(f"No GPU instances found{layout.not_found}\n", NOT_FOUND)
    return boxed(titles, rows)


def lgi_row(layout: R580, gpu: Json, gi: Json, width: int) -> str:
    """One GPU instance."""
    row = (
        f"| {gpu['index']:>3}  MIG {gi['profile']:<{layout.lgi_name}}{layout.lgi_id(gi['profile_id'])}"
        f"{gi['id']:>9}{gi['start']:>11}:{gi['size']}"
    )
    return f"{row:<{width - 1}}|"


def list_compute_instances(machine: Machine) -> str:
    """The answer to mig -lci."""
    placed = machine.layout.with_ci_placement
    titles = [
        "| Compute instances:                                    |",
        "| GPU     GPU       Name             Profile   Instance |",
        "|       Instance                       ID        ID     |",
        "|         ID                                            |",
    ]
    if placed:
        extra = ("             ", "  Placement  ", "  Start:Size ", "             ")
        titles = [title[:-1] + more + "|" for title, more in zip(titles, extra, strict=True)]
    rows = [
        lci_row(gpu, gi, ci, placed)
        for gpu in enabled(machine)
        for gi in gpu["instances"]
        for ci in gi["compute_instances"]
    ]
    if not rows:
        raise Stop(f"No compute instances found{machine.layout.not_found}\n", NOT_FOUND)
    return boxed(titles, rows)


def lci_row(gpu: Json, gi: Json, ci: Json, placed: bool) -> str:
    """One compute instance."""
    row = (
        f"| {gpu['index']:>3}     {gi['id']:>2}       MIG {ci['name']:<16}{ci['profile_id']:>2}{ci['id']:>10}"
    )
    where = f"{ci['start']:>11}:{ci['size']}" if placed else ""
    return f"{row}{where}     |"


def capable(machine: Machine) -> list[Json]:
    """The GPUs whose profiles can be listed."""
    if not machine.layout.profiles_without_mig:
        return enabled(machine)
    gpus = [gpu for gpu in machine.gpus if gpu["profiles"]]
    if not gpus:
        raise Stop("No MIG-supported devices found.\n", NOT_FOUND)
    return gpus


def list_profiles(machine: Machine) -> str:
    """The answer to mig -lgip."""
    layout = machine.layout
    pad = " " * (layout.lgip_name - 11)
    titles = [
        f"| GPU instance profiles:                                                   {pad}|",
        f"| GPU   Name          {pad}ID    Instances   Memory     P2P    SM    DEC   ENC  |",
        f"|                           {pad}Free/Total   GiB              CE    JPEG  OFA  |",
    ]
    rows = [lgip_row(layout, gpu, profile) for gpu in capable(machine) for profile in gpu["profiles"]]
    return boxed(titles, rows, layout.lgip_tail)


def lgip_row(layout: R580, gpu: Json, profile: Json) -> str:
    """One profile: how many more instances fit, and what each gets."""
    head = (
        f"| {gpu['index']:>3}  MIG {profile['name']:<{layout.lgip_name}}{profile['id']:>2}"
        f"     {placeable(gpu, profile)}/{profile['max']}"
        f"        {profile['memory'] / 1024:<5.2f}      No     "
    )
    engines = f"{profile['sm']:<3}{profile['dec']:>5}{profile['enc']:>6}   |"
    others = f"{profile['ce']:>2}{profile['jpeg']:>6}{profile['ofa']:>6}   |"
    return f"{head}{engines}\n|{' ' * (len(head) - 1)}{others}"


def placeable(gpu: Json, profile: Json) -> int:
    """How many instances of a profile still fit beside the present ones."""
    present = gpu["instances"]
    by_name = {known["name"]: known for known in gpu["profiles"]}
    taken = {slot for gi in present for slot in range(gi["start"], gi["start"] + gi["size"])}
    starts = [at for at in profile["starts"] if not taken & set(range(at, at + profile["size"]))]
    compute: int = max(known["compute"] for known in gpu["profiles"])
    compute -= sum(by_name[gi["profile"]]["compute"] for gi in present)
    limit = int(profile["max"])
    if "+me" in profile["name"]:
        limit -= sum("+me" in gi["profile"] for gi in present)
    return max(0, min(len(starts), compute // int(profile["compute"]), limit))


def list_placements(machine: Machine) -> str:
    """The answer to mig -lgipp."""
    tail = machine.layout.placements_tail
    return text([lgipp_row(gpu, known) + tail for gpu in capable(machine) for known in gpu["profiles"]])


def lgipp_row(gpu: Json, profile: Json) -> str:
    """Where a profile may start."""
    word = "Placements:" if len(profile["starts"]) > 1 else "Placement :"
    starts = ",".join(str(start) for start in profile["starts"])
    return f"GPU {gpu['index']:>2} Profile ID {profile['id']:>2} {word} {{{starts}}}:{profile['size']}"


# --- the human table ----------------------------------------------------------------------------------------


def table(machine: Machine) -> str:
    """The answer without arguments."""
    lines = [f"{machine.when()}       ", *gpu_block(machine)]
    if any(in_mig_mode(gpu) for gpu in machine.gpus):
        lines += [machine.layout.gap, *mig_block(machine)]
    lines += [machine.layout.gap, *process_block(machine)]
    return text(lines)


def rule_of(columns: tuple[int, ...], line: str = "-", edge: str = "+") -> str:
    """A rule that crosses the columns."""
    return edge + "+".join(line * width for width in columns) + edge


def gpu_block(machine: Machine) -> Iterator[str]:
    """Banner and GPUs."""
    layout = machine.layout
    rule = rule_of(layout.columns)
    yield f"+{'-' * (len(rule) - 2)}+"
    yield layout.banner.format(driver=machine.state["driver"], cuda=machine.state["cuda"])
    yield layout.banner_edge + rule[1:]
    yield from layout.titles
    yield rule_of(layout.columns, "=", "|")
    for gpu in machine.gpus:
        yield from gpu_rows(layout, gpu)
        yield rule


def gpu_rows(layout: R580, gpu: Json) -> Iterator[str]:
    """Three lines for a GPU."""
    mig = in_mig_mode(gpu)
    yield layout.first.format(
        index=gpu["index"],
        name=shortened(gpu["name"], layout.name),
        persistence="On" if gpu["persistence"] else "Off",
        bus=gpu["bus_id"],
        ecc="On" if mig else shown(gpu["ecc"]),
    )
    yield layout.second.format(
        temperature=gpu["temperature"],
        power=int(gpu["power"]),
        limit=gpu["power_limit"],
        memory=memory_of(layout, gpu),
        utilization="N/A" if mig else f"{gpu['utilization']}%",
        mode=gpu["compute_mode"],
    )
    left, middle, _ = layout.columns
    pending = "" if gpu["mig_current"] == gpu["mig_pending"] else "*"
    yield f"|{' ' * left}|{' ' * middle}| {gpu['mig_current'] + pending:>20} |"


def shown(value: Any) -> str:
    """N/A for what is not known."""
    return "N/A" if value is None else str(value)


def shortened(name: str, width: int) -> str:
    """Long names lose their end."""
    return name if len(name) <= width else f"{name[: width - 3]}..."


def memory_of(layout: R580, gpu: Json) -> str:
    """Used and total; not told inside a container that owns a slice only."""
    if gpu["memory_used"] is None:
        return layout.no_memory
    return layout.memory.format(used=gpu["memory_used"], total=gpu["memory_total"])


def mig_block(machine: Machine) -> Iterator[str]:
    """The table of MIG devices."""
    layout = machine.layout
    width = sum(layout.columns) + 2
    columns = (18, width - 55, 11, 23)
    yield f"+{'-' * width}+"
    yield f"| {'MIG devices:':<{width - 1}}|"
    yield rule_of(columns)
    yield from layout.mig_titles
    yield rule_of(columns, "=", "|")
    rows = [row for gpu in machine.gpus for row in mig_rows(layout, gpu, columns)]
    yield from rows or [f"|  {'No MIG devices found':<{width - 2}}|", f"+{'-' * width}+"]


def mig_rows(layout: R580, gpu: Json, columns: tuple[int, ...]) -> Iterator[str]:
    """The MIG devices of a GPU; memory is told once for all that share an instance."""
    devices = mig_devices(gpu)
    blank = " " * columns[1]
    for index, gi, ci in devices:
        first = all(other["id"] != gi["id"] for _, other, _ in devices[:index])
        shares = any(other["id"] == gi["id"] for _, other, _ in devices[index + 1 :])
        used = layout.mig_memory.format(used=gi["memory_used"], total=gi["memory_total"]) if first else blank
        bar = layout.mig_memory.format(used=gi["bar1_used"], total=gi["bar1_total"]) if first else blank
        yield (
            f"|{gpu['index']:>3}{gi['id']:>5}{ci['id']:>4}{index:>4}  |{used}| {ci['sm']:<3}{0:>6} |"
            f"{gi['ce']:>3}{gi['enc']:>4}{gi['dec']:>5}{gi['ofa']:>5}{gi['jpeg']:>5} |"
        )
        yield f"|{' ' * 18}|{bar}|{' ' * 11}|{' ' * 23}|"
        rule = rule_of(columns)
        yield rule.replace(f"+{'-' * columns[1]}+", f"+{blank}+") if shares else rule


def process_block(machine: Machine) -> Iterator[str]:
    """The table of processes."""
    layout = machine.layout
    width = sum(layout.columns) + 2
    pid = " " * (layout.process_pid - 3)
    name = f"{'Process name':<{layout.process_name}}"
    yield f"+{'-' * width}+"
    yield f"| {'Processes:':<{width - 1}}|"
    yield f"|  GPU   GI   CI{pid}PID   Type   {name}GPU Memory |"
    yield f"|        ID   ID{' ' * (len(pid) + len(name) + 13)}Usage      |"
    yield f"|{'=' * width}|"
    rows = [
        process_row(layout, process) for gpu in machine.gpus for process in sorted_processes(machine, gpu)
    ]
    yield from rows or [f"|  {'No running processes found':<{width - 2}}|"]
    yield f"+{'-' * width}+"


def sorted_processes(machine: Machine, gpu: Json) -> list[Json]:
    """By instance, then by number."""
    return sorted(machine.processes_of(gpu), key=lambda each: (each["gi"] or 0, each["ci"] or 0, each["pid"]))


def process_row(layout: R580, process: Json) -> str:
    """One process."""
    if process["gi"] is None:
        ids = f"   N/A  N/A{process['pid']:>{layout.process_pid - 1}}"
    else:
        ids = f"{process['gi']:>5}{process['ci']:>5}{process['pid']:>{layout.process_pid}}"
    name = process["name"]
    if len(name) >= layout.process_name:
        name = f"...{name[4 - layout.process_name :]}"
    return (
        f"|{process['gpu']:>5}{ids}{process['type']:>7}   {name:<{layout.process_name}}"
        f"{process['memory']:>7}MiB |"
    )


# --- -q -x --------------------------------------------------------------------------------------------------

# "name: value" is an element, a name alone opens a section, "@" is filled in by code. The first column says
# where a line appears: "-" before R580, "+" since R580, "<" before Hopper, ">" since Hopper.
XML = """\
 product_name: {name}
 product_brand: NVIDIA
 product_architecture: {architecture}
 display_mode: Disabled
+display_attached: No
 display_active: Disabled
 persistence_mode: {enabled}
 addressing_mode: HMM
 mig_mode
  current_mig: {mig_current}
  pending_mig: {mig_pending}
 @mig_devices
 accounting_mode: Disabled
 accounting_mode_buffer_size: 4000
 driver_model
  current_dm: N/A
  pending_dm: N/A
 serial: {serial}
 uuid: {uuid}
+pdi: 0x0000000000000001
 minor_number: {index}
 vbios_version: 96.00.00.00.01
 multigpu_board: No
 board_id: 0x{bus}00
 board_part_number: N/A
 gpu_part_number: N/A
 gpu_fru_part_number: N/A
 platformInfo
  chassis_serial_number: N/A
  slot_number: N/A
  tray_index: N/A
  host_id: N/A
  peer_type: N/A
  module_id: 7
  gpu_fabric_guid: N/A
 inforom_version
  img_version: N/A
  oem_object: N/A
  ecc_object: N/A
  pwr_object: N/A
 inforom_bbx_flush
  latest_timestamp: N/A
  latest_duration: N/A
 gpu_operation_mode
  current_gom: N/A
  pending_gom: N/A
 c2c_mode: Disabled
 gpu_virtualization_mode
  virtualization_mode: Pass-Through
  host_vgpu_mode: N/A
  vgpu_heterogeneous_mode: N/A
-gpu_reset_status
- reset_required: Requested functionality has been deprecated
- drain_and_reset_recommended: Requested functionality has been deprecated
 gpu_recovery_action: None
 gsp_firmware_version: {driver}
 ibmnpu
  relaxed_ordering_mode: N/A
 pci
  pci_bus: {bus}
  pci_device: 00
  pci_domain: 0000
  pci_base_class: 3
  pci_sub_class: 2
  pci_device_id: {device_id}
  pci_bus_id: {bus_id}
  pci_sub_system_id: 000010DE
  pci_gpu_link_info
   pcie_gen
    max_link_gen: 5
    current_link_gen: 5
    device_current_link_gen: 5
    max_device_link_gen: 5
    max_host_link_gen: N/A
   link_widths
    max_link_width: 16x
    current_link_width: 16x
  pci_bridge_chip
   bridge_chip_type: N/A
   bridge_chip_fw: N/A
  replay_counter: 0
  replay_rollover_counter: 0
  tx_util: 0 KB/s
  rx_util: 0 KB/s
  atomic_caps_outbound: N/A
  atomic_caps_inbound: N/A
 fan_speed: N/A
 performance_state: P0
 clocks_event_reasons
  clocks_event_reason_gpu_idle: Active
  clocks_event_reason_applications_clocks_setting: Not Active
  clocks_event_reason_sw_power_cap: Not Active
  clocks_event_reason_hw_slowdown: Not Active
  clocks_event_reason_hw_thermal_slowdown: Not Active
  clocks_event_reason_hw_power_brake_slowdown: Not Active
  clocks_event_reason_sync_boost: Not Active
  clocks_event_reason_sw_thermal_slowdown: Not Active
  clocks_event_reason_display_clocks_setting: Not Active
+clocks_event_reasons_counters
+ clocks_event_reasons_counters_sw_power_cap: 0 us
+ clocks_event_reasons_counters_sync_boost: 0 us
+ clocks_event_reasons_counters_sw_therm_slowdown: 0 us
+ clocks_event_reasons_counters_hw_therm_slowdown: 0 us
+ clocks_event_reasons_counters_hw_power_brake: 0 us
 sparse_operation_mode: Disabled
 fb_memory_usage
  total: {memory_total} MiB
  reserved: {memory_reserved} MiB
  used: {used}
  free: {free}
 bar1_memory_usage
  total: {bar1_total} MiB
  used: 1 MiB
  free: {bar1_free} MiB
 cc_protected_memory_usage
  total: 0 MiB
  used: 0 MiB
  free: 0 MiB
 compute_mode: {compute_mode}
 utilization
  gpu_util: {utilization}
  memory_util: {utilization}
  encoder_util: 0 %
  decoder_util: 0 %
  jpeg_util: 0 %
  ofa_util: 0 %
 encoder_stats
  session_count: 0
  average_fps: 0
  average_latency: 0
 fbc_stats
  session_count: 0
  average_fps: 0
  average_latency: 0
 dram_encryption_mode
  current_dram_encryption: N/A
  pending_dram_encryption: N/A
 ecc_mode
  current_ecc: Enabled
  pending_ecc: Enabled
 ecc_errors
  volatile
   sram_correctable: 0
   sram_uncorrectable_parity: 0
   sram_uncorrectable_secded: 0
   dram_correctable: 0
   dram_uncorrectable: 0
  aggregate
   sram_correctable: 0
   sram_uncorrectable_parity: 0
   sram_uncorrectable_secded: 0
   dram_correctable: 0
   dram_uncorrectable: 0
   sram_threshold_exceeded: No
  aggregate_uncorrectable_sram_sources
   sram_l2: 0
   sram_sm: 0
   sram_microcontroller: 0
   sram_pcie: 0
   sram_other: 0
+ channel_repair_pending: No
+ tpc_repair_pending: No
 retired_pages
  multiple_single_bit_retirement
   retired_count: N/A
   retired_pagelist: N/A
  double_bit_retirement
   retired_count: N/A
   retired_pagelist: N/A
  pending_blacklist: N/A
  pending_retirement: N/A
 remapped_rows
  remapped_row_corr: 0
  remapped_row_unc: 0
  remapped_row_pending: No
  remapped_row_failure: No
  row_remapper_histogram
   row_remapper_histogram_max: 2560 bank(s)
   row_remapper_histogram_high: 0 bank(s)
   row_remapper_histogram_partial: 0 bank(s)
   row_remapper_histogram_low: 0 bank(s)
   row_remapper_histogram_none: 0 bank(s)
 temperature
  gpu_temp: {temperature} C
  gpu_temp_tlimit: 58 C
< gpu_temp_max_threshold: 92 C
< gpu_temp_slow_threshold: 89 C
< gpu_temp_max_gpu_threshold: 85 C
> gpu_temp_max_tlimit_threshold: -8 C
> gpu_temp_slow_tlimit_threshold: -2 C
> gpu_temp_max_gpu_tlimit_threshold: 0 C
  gpu_target_temperature: N/A
  memory_temp: 37 C
< gpu_temp_max_mem_threshold: 95 C
> gpu_temp_max_mem_tlimit_threshold: 0 C
 supported_gpu_target_temp
  gpu_target_temp_min: N/A
  gpu_target_temp_max: N/A
 gpu_power_readings
  power_state: P0
  average_power_draw: {power}
  instant_power_draw: {power}
  current_power_limit: {limit}
  requested_power_limit: {limit}
  default_power_limit: {limit}
  min_power_limit: 200.00 W
  max_power_limit: {limit}
 gpu_memory_power_readings
  average_power_draw: N/A
  instant_power_draw: N/A
 module_power_readings
  power_state: P0
  average_power_draw: N/A
  instant_power_draw: N/A
  current_power_limit: N/A
  requested_power_limit: N/A
  default_power_limit: N/A
  min_power_limit: N/A
  max_power_limit: N/A
 power_smoothing: N/A
 power_profiles
  power_profile_requested_profiles: N/A
  power_profile_enforced_profiles: N/A
 clocks
  graphics_clock: {clock} MHz
  sm_clock: {clock} MHz
  mem_clock: {memory_clock} MHz
  video_clock: {clock} MHz
 applications_clocks
  graphics_clock: {clock} MHz
  mem_clock: {memory_clock} MHz
 default_applications_clocks
  graphics_clock: {clock} MHz
  mem_clock: {memory_clock} MHz
 deferred_clocks
  mem_clock: N/A
 max_clocks
  graphics_clock: {clock} MHz
  sm_clock: {clock} MHz
  mem_clock: {memory_clock} MHz
  video_clock: {clock} MHz
 max_customer_boost_clocks
  graphics_clock: {clock} MHz
 clock_policy
  auto_boost: N/A
  auto_boost_default: N/A
-voltage
- graphics_volt: N/A
 fabric
  state: N/A
  status: N/A
  cliqueId: N/A
  clusterUuid: N/A
  health
+  summary: N/A
   bandwidth: N/A
   route_recovery_in_progress: N/A
   route_unhealthy: N/A
   access_timeout_recovery: N/A
+  incorrect_configuration: N/A
 @supported_clocks
 @processes
 accounted_processes
 capabilities
  egm: disabled
"""


def xml(machine: Machine) -> str:
    """The answer to -q -x."""
    lines = [
        '<?xml version="1.0" ?>',
        f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_{machine.layout.dtd}.dtd">',
        "<nvidia_smi_log>",
        f"\t<timestamp>{machine.when()}</timestamp>",
        f"\t<driver_version>{machine.state['driver']}</driver_version>",
        f"\t<cuda_version>{machine.state['cuda']}</cuda_version>",
        f"\t<attached_gpus>{len(machine.gpus)}</attached_gpus>",
    ]
    for gpu in machine.gpus:
        lines += [f'\t<gpu id="{gpu["bus_id"]}">', *xml_gpu(machine, gpu), "\t</gpu>", ""]
    return text([*lines, "</nvidia_smi_log>"])


def xml_gpu(machine: Machine, gpu: Json) -> Iterator[str]:
    """The elements of a GPU, by the template."""
    facts = xml_facts(machine, gpu)
    blocks = {"mig_devices": xml_mig, "supported_clocks": xml_clocks, "processes": xml_processes}
    old, early = machine.layout.dtd != "v13", gpu["architecture"] in ("Volta", "Ampere")
    absent = ("+" if old else "-") + (">" if early else "<")
    path: list[str] = []
    for line in XML.splitlines():
        if line[0] in absent:
            continue
        depth = len(line) - 1 - len(line[1:].lstrip(" "))
        yield from xml_close(path, depth)
        name, colon, value = line[1:].strip().partition(": ")
        tabs = "\t" * (depth + 2)
        if name.startswith("@"):
            yield from blocks[name[1:]](machine, gpu)
        elif colon:
            told = gpu["xml"].get(".".join([*path, name]), value.format_map(facts))
            yield f"{tabs}<{name}>{escaped(told)}</{name}>"
        else:
            yield f"{tabs}<{name}>"
            path.append(name)
    yield from xml_close(path, 0)


def xml_close(path: list[str], depth: int) -> Iterator[str]:
    """Close the sections deeper than a line."""
    while len(path) > depth:
        yield "\t" * (len(path) + 1) + f"</{path.pop()}>"


def escaped(value: object) -> str:
    """Text inside an element."""
    return str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def xml_facts(machine: Machine, gpu: Json) -> Json:
    """The values that the template names."""
    unknown = gpu["memory_used"] is None
    return gpu | {
        "driver": machine.state["driver"],
        "enabled": "Enabled" if gpu["persistence"] else "Disabled",
        "utilization": "N/A" if in_mig_mode(gpu) else f"{gpu['utilization']} %",
        "power": f"{gpu['power']:.2f} W",
        "limit": f"{gpu['power_limit']:.2f} W",
        "used": "N/A" if unknown else f"{gpu['memory_used']} MiB",
        "free": "N/A" if unknown else f"{free_memory(gpu)} MiB",
        "bar1_free": gpu["bar1_total"] - 1,
        "bus": gpu["bus_id"][9:11],
        "clock": max((first for first, _, _ in gpu["clocks"].values()), default=0),
        "memory_clock": next(iter(gpu["clocks"]), "0"),
    }


def element(tabs: int, name: str, value: object) -> str:
    """One element."""
    return "\t" * tabs + f"<{name}>{escaped(value)}</{name}>"


def section(tabs: int, name: str, inner: list[str]) -> list[str]:
    """Elements in a section."""
    indent = "\t" * tabs
    return [f"{indent}<{name}>", *inner, f"{indent}</{name}>"]


def xml_mig(_: Machine, gpu: Json) -> list[str]:
    """The MIG devices of a GPU."""
    devices = [line for index, gi, ci in mig_devices(gpu) for line in xml_mig_device(index, gi, ci)]
    return section(2, "mig_devices", devices or ["\t\t\tNone"])


def xml_mig_device(index: int, gi: Json, ci: Json) -> list[str]:
    """One MIG device."""
    shared = {
        "multiprocessor_count": ci["sm"],
        "copy_engine_count": gi["ce"],
        "encoder_count": gi["enc"],
        "decoder_count": gi["dec"],
        "ofa_count": gi["ofa"],
        "jpg_count": gi["jpeg"],
    }
    volatile = section(5, "volatile_count", [element(6, "sram_uncorrectable", 0)])
    attributes = section(5, "shared", [element(6, name, count) for name, count in shared.items()])
    inner = [
        element(4, "index", index),
        element(4, "gpu_instance_id", gi["id"]),
        element(4, "compute_instance_id", ci["id"]),
        *section(4, "device_attributes", attributes),
        *section(4, "ecc_error_count", volatile),
        *section(4, "fb_memory_usage", usage(gi["memory_total"], gi["memory_used"], reserved=True)),
        *section(4, "bar1_memory_usage", usage(gi["bar1_total"], gi["bar1_used"], reserved=False)),
    ]
    return section(3, "mig_device", inner)


def usage(total: int, used: int, *, reserved: bool) -> list[str]:
    """Memory of an instance."""
    rows = {"total": total, "reserved": 0, "used": used, "free": total - used}
    return [element(5, name, f"{mib} MiB") for name, mib in rows.items() if reserved or name != "reserved"]


def xml_clocks(_: Machine, gpu: Json) -> list[str]:
    """The clocks a GPU can run at: memory clock to first, last, step."""
    inner = []
    for memory, (first, last, step) in gpu["clocks"].items():
        clocks = [
            element(4, "supported_graphics_clock", f"{mhz} MHz") for mhz in range(first, last - 1, -step)
        ]
        inner += section(3, "supported_mem_clock", [element(4, "value", f"{memory} MHz"), *clocks])
    return section(2, "supported_clocks", inner)


def xml_processes(machine: Machine, gpu: Json) -> list[str]:
    """The processes on a GPU, with their instances."""
    inner = [line for process in sorted_processes(machine, gpu) for line in xml_process(process)]
    return section(2, "processes", inner)


def xml_process(process: Json) -> list[str]:
    """One process."""
    told = {
        "gpu_instance_id": shown(process["gi"]),
        "compute_instance_id": shown(process["ci"]),
        "pid": process["pid"],
        "type": process["type"],
        "process_name": process["name"],
        "used_memory": f"{process['memory']} MiB",
    }
    return section(3, "process_info", [element(4, name, value) for name, value in told.items()])


# --- the command line ---------------------------------------------------------------------------------------


def answer(machine: Machine, arguments: list[str]) -> str:
    """What is asked for, as text."""
    options = parsed(arguments)
    machine.select(options.pop("-i", None))
    form = options.pop("--format", None)
    commands: dict[str, Callable[[Machine], str]] = {
        "": table,
        "-L": list_gpus,
        "-q -x": xml,
        "mig -lgi": list_instances,
        "mig -lci": list_compute_instances,
        "mig -lgip": list_profiles,
        "mig -lgipp": list_placements,
    }
    queries = {"--query-gpu": query_gpus, "--query-compute-apps": query_processes}
    if len(options) == 1 and (name := next(iter(options))) in queries:
        if form is None:
            raise Stop("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n\n", 2)
        return queries[name](machine, options[name], form)
    command = commands.get(" ".join(sorted(options, key=lambda name: (name != "mig", name))))
    if command is None:
        raise Stop("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n", 1)
    return command(machine)


def parsed(arguments: list[str]) -> dict[str, str]:
    """Options with their values; those without have an empty one."""
    long = {"--id": "-i", "--list-gpus": "-L", "--query": "-q", "--xml-format": "-x", "-qx": "-q -x"}
    options: dict[str, str] = {}
    waiting = iter(arguments)
    for argument in waiting:
        name, _, value = argument.partition("=")
        name = long.get(name, name)
        if name in ("-i", "--format", "--query-gpu", "--query-compute-apps") and not value:
            value = next(waiting, "")
        options.update(dict.fromkeys(name.split(), value))
    return options


def fault_of(state: Json, arguments: list[str]) -> Json | None:
    """The fault that the state keeps for this command line."""
    asked = " ".join(arguments)
    return next((fault for fault in state["faults"] if re.search(fault["on"], asked)), None)


def run(state: Json, arguments: list[str]) -> tuple[str, str, int]:
    """Standard output, standard error, exit code."""
    fault = fault_of(state, arguments)
    if fault is not None:
        time.sleep(fault["sleep"])
        if fault["stdout"] is not None:
            return fault["stdout"], fault["stderr"], fault["exit"]
    try:
        told, code = answer(Machine(state), arguments), 0
    except Stop as stop:
        told, code = stop.text, stop.code
    return (told, "", code) if fault is None else (told, fault["stderr"], fault["exit"])


def main() -> int:
    """Read the state and answer."""
    try:
        with open(os.environ.get("NVIDIA_SMI_STATE", STATE), encoding="utf-8") as file:
            state = json.load(file)
    except FileNotFoundError:
        state = {"faults": [{"on": "", "sleep": 0, "stdout": NO_DRIVER, "stderr": "", "exit": 9}]}
    out, err, code = run(state, sys.argv[1:])
    sys.stdout.write(out)
    sys.stdout.flush()
    sys.stderr.write(err)
    return code


if __name__ == "__main__":
    sys.exit(main())
