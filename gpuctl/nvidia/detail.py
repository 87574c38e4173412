"""`nvidia-smi -q -x`: memory per MIG device, processes with their instances, device ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.output import Said, Trouble, judged, readable, shortened, too_long
from gpuctl.nvidia.query import Process, bus

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_BEFORE: Final = re.compile(r"<\?xml|<nvidia_smi_log")
_ENTITIES: Final = re.compile(r"<!(?:ENTITY|DOCTYPE[^>]*\[)")
_END: Final = "</nvidia_smi_log>"


class DeviceMemory(msgspec.Struct, frozen=True):
    """A MIG device by its number on the GPU and those of its instances. Memory in MiB, None if not told."""

    index: int
    instance: int
    compute: int
    total: int | None = None
    used: int | None = None


class DetailedGpu(msgspec.Struct, frozen=True):
    """One GPU. Empty and None stand for what is not told; XML tells no index, the tables no UUID."""

    bus_id: str
    uuid: str = ""
    index: int | None = None
    name: str = ""
    mode: str = ""
    pending: str = ""
    device_id: str = ""
    memory_total: int | None = None
    memory_used: int | None = None
    compute_mode: str = ""
    devices: tuple[DeviceMemory, ...] = ()
    processes: tuple[Process, ...] = ()


class Detail(msgspec.Struct, frozen=True):
    """The answer. `attached` is how many GPUs the driver has, None if not told."""

    gpus: tuple[DetailedGpu, ...] = ()
    attached: int | None = None
    driver: str = ""
    said: tuple[Said, ...] = ()


def parse_detail(output: Output) -> Detail:
    """Reads the answer to `nvidia-smi -q -x`, in any version of its DTD."""
    text = readable(output)
    start = _BEFORE.search(text)
    if start is None:
        said = (*too_long(text), *judged(text.split("\n")[:50], output))
        return Detail(said=said or (Said(Trouble.UNREADABLE, "the answer is empty"),))
    before, document = text[: start.start()], text[start.start() :]
    document, end, after = document.partition(_END)
    said = judged((*before.split("\n"), *after.split("\n")[:50]), output)
    return _parsed(document + end, said)


def _parsed(document: str, said: tuple[Said, ...]) -> Detail:
    from xml.etree.ElementTree import ParseError, fromstring

    if _ENTITIES.search(document):
        return Detail(said=(*said, Said(Trouble.UNREADABLE, "XML that defines entities is not read")))
    try:
        root = fromstring(document)  # noqa: S314 - no entities are left in it
    except ParseError as error:
        return Detail(said=(*said, Said(Trouble.UNREADABLE, shortened(f"XML: {error}"))))
    gpus = tuple(_gpu(each) for each in root.iter("gpu"))
    attached = _number(root, "attached_gpus")
    if attached is not None and attached != len(gpus):
        said = (*said, Said(Trouble.UNREADABLE, f"attached_gpus is {attached}, {len(gpus)} are described"))
    return Detail(gpus, attached, _text(root, "driver_version"), said)


def _gpu(element: Element) -> DetailedGpu:
    uuid = _text(element, "uuid")
    return DetailedGpu(
        bus_id=bus(element.get("id", "")),
        uuid=uuid,
        name=_text(element, "product_name"),
        mode=_mode(element, "mig_mode/current_mig"),
        pending=_mode(element, "mig_mode/pending_mig"),
        device_id=_device_id(_text(element, "pci/pci_device_id")),
        memory_total=_number(element, "fb_memory_usage/total"),
        memory_used=_number(element, "fb_memory_usage/used"),
        compute_mode=_text(element, "compute_mode"),
        devices=tuple(_devices(element)),
        processes=tuple(_processes(element, uuid)),
    )


def _devices(gpu: Element) -> Iterator[DeviceMemory]:
    for each in gpu.iterfind("mig_devices/mig_device"):
        numbers = [_number(each, name) for name in ("index", "gpu_instance_id", "compute_instance_id")]
        if None not in numbers:
            index, instance, compute = (number or 0 for number in numbers)
            total, used = (_number(each, f"fb_memory_usage/{name}") for name in ("total", "used"))
            yield DeviceMemory(index, instance, compute, total, used)


def _processes(gpu: Element, uuid: str) -> Iterator[Process]:
    for each in gpu.iterfind("processes/process_info"):
        pid = _number(each, "pid")
        if pid is not None:
            memory, instance = _number(each, "used_memory"), _number(each, "gpu_instance_id")
            yield Process(uuid, pid, _text(each, "process_name"), memory, instance)


def _text(element: Element, path: str) -> str:
    text = (element.findtext(path) or "").strip()
    return "" if text in ("N/A", "[N/A]", "None") else text


def _mode(element: Element, path: str) -> str:
    text = (element.findtext(path) or "").strip()
    return text if text in ("Enabled", "Disabled", "N/A") else ""


def _number(element: Element, path: str) -> int | None:
    text = _text(element, path).removesuffix(" MiB")
    return int(text) if text.isdecimal() and text.isascii() else None


def _device_id(text: str) -> str:
    """In the spelling of --query-gpu: `0x233010de`."""
    return f"0x{text.removeprefix('0x').lower()}" if text else ""
