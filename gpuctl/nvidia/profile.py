"""MIG profiles by their grammar, `[Cc.]Gg.Ngb[+attributes|-attributes]`: no list of cards decides."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Final

_PARTS: Final = re.compile(r"(?:(\d+)c\.)?(\d+)g\.(\d+)gb(?:([+-])([A-Za-z][A-Za-z0-9.,]*))?")
_DOTTED: Final = re.compile(r"((?:\d+c\.)?\d+g\.\d+gb)\.([A-Za-z][A-Za-z0-9.]*)")
_EIGHTHS: Final = 8


@dataclass(frozen=True, eq=False)
class Profile:
    """A profile: compute slices in use, compute slices of the GPU instance, its nominal gigabytes.

    `attributes` has its sign: `+me`, `+me.all`, `+gfx`, `-me`. `gigabytes` is part of the name and not the
    usable memory. Equal ones are one object, for `made` alone makes them.
    """

    compute: int
    slices: int
    gigabytes: int
    attributes: str = ""

    def __str__(self) -> str:
        return self._name

    @cached_property
    def _name(self) -> str:
        shared = "" if self.whole else f"{self.compute}c."
        return f"{shared}{self.slices}g.{self.gigabytes}gb{self.attributes}"

    @cached_property
    def whole(self) -> bool:
        """Whether the compute instance has all of its GPU instance; only such are advertised."""
        return self.compute == self.slices

    @cached_property
    def plain(self) -> Profile:
        """Without attributes, as `nvidia-smi -L` names it."""
        return made(self.compute, self.slices, self.gigabytes, "")

    @cached_property
    def instance(self) -> Profile:
        """The GPU instance's own profile."""
        return made(self.slices, self.slices, self.gigabytes, self.attributes)

    @cached_property
    def label(self) -> str:
        """`1g.10gb.me`: as labels, resources and configuration names write it."""
        return str(self).replace("+", ".").replace(",", ".")

    @cached_property
    def resource(self) -> str:
        """The resource the device plugin advertises for it with strategy mixed."""
        return f"nvidia.com/mig-{self.label}"


@cache
def made(compute: int, slices: int, gigabytes: int, attributes: str, /) -> Profile:
    """The profile of these parts: one object for equal ones, which are met a hundred thousand times."""
    return Profile(compute, slices, gigabytes, attributes)


@lru_cache(maxsize=4096)
def parse(text: str) -> Profile | None:
    """The profile of this name, or None if it is none."""
    found = _PARTS.fullmatch(text)
    if found is None:
        return None
    compute, slices, gigabytes, sign, attributes = found.groups()
    signed = f"{sign}{attributes}" if attributes else ""
    return made(int(compute or slices), int(slices), int(gigabytes), signed)


@lru_cache(maxsize=4096)
def parse_label(text: str) -> Profile | None:
    """The profile of a label or resource name, in which `+` is written as a dot."""
    dotted = _DOTTED.fullmatch(text)
    return parse(f"{dotted[1]}+{dotted[2]}" if dotted else text)


def gigabytes(instance_mib: float, gpu_mib: int) -> int:
    """The number in an instance's name: its share of the GPU in eighths, of the GPU's memory in whole GiB.

    The name depends on the total memory that the driver reports, so it differs between drivers.
    """
    eighths = math.ceil(_EIGHTHS * instance_mib / gpu_mib)
    return int(eighths / _EIGHTHS * math.ceil(gpu_mib / 1024) + 0.5)
