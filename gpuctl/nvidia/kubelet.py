"""The kubelet's record of devices: which resources are registered, and which pod holds which device."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.output import readable

_REPLICA: Final = re.compile(r"::\d+$")


class _Entry(msgspec.Struct, frozen=True):
    pod: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(default="", name="ContainerName")
    resource: str = msgspec.field(default="", name="ResourceName")
    devices: dict[str, list[str]] | list[str] | None = msgspec.field(default=None, name="DeviceIDs")

    @property
    def ids(self) -> list[str]:
        """Device ids; grouped by NUMA node since Kubernetes 1.20."""
        found = self.devices or []
        return found if isinstance(found, list) else [each for some in found.values() for each in some]


class _Data(msgspec.Struct, frozen=True):
    entries: tuple[_Entry, ...] | None = msgspec.field(default=None, name="PodDeviceEntries")
    registered: dict[str, list[str] | None] | None = msgspec.field(default=None, name="RegisteredDevices")


class _Checkpoint(msgspec.Struct, frozen=True):
    data: _Data = msgspec.field(name="Data")


class Held(msgspec.Struct, frozen=True):
    """A device that is allocated. `pod` is the UID; a shared device is held by several."""

    device: str
    resource: str
    pod: str
    container: str


class Devices(msgspec.Struct, frozen=True):
    """What the kubelet has written down. Ids are UUIDs, without the number of a replica."""

    held: tuple[Held, ...]
    registered: dict[str, frozenset[str]]

    def holders(self, uuid: str) -> tuple[Held, ...]:
        """Who holds a device."""
        return tuple(each for each in self.held if each.device == uuid)


def parse_devices(output: Output) -> Devices:
    """Reads kubelet_internal_checkpoint. Raises ValueError."""
    try:
        data = msgspec.json.decode(readable(output).strip(), type=_Checkpoint).data
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ValueError(f"not the kubelet's device checkpoint: {error}") from error
    held = tuple(
        Held(_REPLICA.sub("", device), entry.resource, entry.pod, entry.container)
        for entry in data.entries or ()
        for device in entry.ids
    )
    registered = {
        name: frozenset(_REPLICA.sub("", each) for each in ids or ())
        for name, ids in (data.registered or {}).items()
    }
    return Devices(held, registered)
