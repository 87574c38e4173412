"""`nvidia-smi mig -lgip` and `-lgipp`: which profiles the GPUs of a node can have, and where they may lie."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.lines import ALIKE, Form, scan
from gpuctl.nvidia.output import Said, Trouble, shortened
from gpuctl.nvidia.profile import Profile, parse

_NOTHING: Final = re.compile(r"No MIG-(?:enabled|supported) devices found", re.IGNORECASE)
_LGIP: Final = Form.of(
    r"\|[ ]+(\d+)[ ]+MIG[ ]+(\S+)[ ]+(\d+)[ ]+(\d+)/(\d+)[ ]+([\d.]+)[ ]+\w+[ ]+(\d+)"
    r"[ ]+\d+[ ]+\d+[ ]+\|[ \t]*",
    r"(\|[ ]+\d+[ ]+\d+[ ]+\d+[ ]+\|)[ \t]*",
    framed=True,
)
_LGIPP: Final = Form.of(
    r"GPU[ ]+(\d+)[ ]+Profile ID[ ]+(\d+)[ ]+Placements?[ ]*:[ ]*\{([\d, ]*)\}:(\d+)[ \t]*", framed=False
)


class Offer(msgspec.Struct, frozen=True):
    """A profile that a GPU can have: how many still fit and fit at most, and the memory of one in MiB."""

    gpu: int
    profile: Profile
    profile_id: int
    free: int
    total: int
    memory: float
    multiprocessors: int


class Offers(msgspec.Struct, frozen=True):
    """The answer to `-lgip`."""

    found: tuple[Offer, ...] = ()
    said: tuple[Said, ...] = ()


class Placement(msgspec.Struct, frozen=True):
    """Where an instance of a profile may start, in memory slices, and how many it takes."""

    gpu: int
    profile_id: int
    starts: tuple[int, ...]
    size: int


class Placements(msgspec.Struct, frozen=True):
    """The answer to `-lgipp`."""

    found: tuple[Placement, ...] = ()
    said: tuple[Said, ...] = ()


@lru_cache(maxsize=ALIKE)
def parse_offers(output: Output) -> Offers:
    """Reads the answer to `nvidia-smi mig -lgip`."""
    scanned = scan(output, _LGIP, _NOTHING)
    found: list[Offer] = []
    said = list(scanned.said)
    for row in scanned.rows:
        gpu, name, number, free, total, size, multiprocessors, engines, _ = row
        if engines:  # the second line of a row
            continue
        profile, memory = parse(name), _number(size)
        if profile is None or memory is None:
            said.append(Said(Trouble.UNREADABLE, shortened(" ".join(row))))
        else:
            numbers = (int(number), int(free), int(total))
            found.append(Offer(int(gpu), profile, *numbers, memory * 1024, int(multiprocessors)))
    return Offers(tuple(found), tuple(said))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@lru_cache(maxsize=ALIKE)
def parse_placements(output: Output) -> Placements:
    """Reads the answer to `nvidia-smi mig -lgipp`."""
    scanned = scan(output, _LGIPP, _NOTHING)
    found = tuple(
        Placement(
            int(gpu), int(number), tuple(int(each) for each in starts.split(",") if each.strip()), int(size)
        )
        for gpu, number, starts, size, _ in scanned.rows
    )
    return Placements(found, scanned.said)
