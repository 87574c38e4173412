"""Whether a combination of GPU instances fits on one GPU: each needs a legal place of its own.

What `nvidia-smi mig -lgip` and `-lgipp` say decides. A GPU with MIG off says nothing there: then the known
grids of NVIDIA's data sheets do, eight memory slices and seven compute slices, or four of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.nvidia.model import Gpu
from gpuctl.nvidia.offers import Offers, Placements
from gpuctl.nvidia.profile import Profile, gigabytes

_EIGHTHS: Final = 8
_QUARTERS: Final = ("A30", "RTX")  # models of four slices, by their names
_MEDIA: Final = "+me"


@dataclass(frozen=True, slots=True)
class Shape:
    """An instance of one profile: its compute slices, the memory it covers, where it may start, how many
    there may be."""

    compute: int
    size: int
    starts: tuple[int, ...]
    most: int


# By compute slices and eighths of the memory.
_GRID_OF_SEVEN: Final = {
    (1, 1): Shape(1, 1, (0, 1, 2, 3, 4, 5, 6), 7),
    (1, 2): Shape(1, 2, (0, 2, 4, 6), 4),
    (2, 2): Shape(2, 2, (0, 2, 4), 3),
    (3, 4): Shape(3, 4, (0, 4), 2),
    (4, 4): Shape(4, 4, (0,), 1),
    (7, 8): Shape(7, 8, (0,), 1),
}
# By compute slices alone.
_GRID_OF_FOUR: Final = {
    1: Shape(1, 1, (0, 1, 2, 3), 4),
    2: Shape(2, 2, (0, 2), 2),
    4: Shape(4, 4, (0,), 1),
}


def obstacle(
    wanted: Iterable[tuple[Profile, int]], gpu: Gpu, offers: Offers | None, placements: Placements | None
) -> str:
    """Why these instances can't be on the GPU together; empty if they can. Raises NotKnown."""
    told = _told(gpu, offers, placements)
    instances = [
        (profile, told.get(profile) or _known(profile, gpu)) for profile, n in wanted for _ in range(n)
    ]
    for profile in dict.fromkeys(profile for profile, _ in instances):
        most = 1 if profile.attributes.startswith(_MEDIA) else _shape(profile, instances).most
        count = sum(each is profile for each, _ in instances)
        if count > most:
            return f"{count}x {profile}, of which {most} at most fit on {gpu}"
    media = [str(each) for each, _ in instances if each.attributes.startswith(_MEDIA)]
    if len(media) > 1:
        return f"{', '.join(media)}: {gpu} has one set of media engines"
    slices, room = sum(shape.compute for _, shape in instances), _compute(gpu, told)
    if slices > room:
        return f"{slices} compute slices, {gpu} has {room}"
    if not _placed(sorted((shape for _, shape in instances), key=_order), ()):
        return f"no places for all of them on {gpu}"
    return ""


def _told(gpu: Gpu, offers: Offers | None, placements: Placements | None) -> Mapping[Profile, Shape]:
    """The shapes that nvidia-smi tells of this GPU."""
    places = (
        {each.profile_id: each for each in placements.found if each.gpu == gpu.index} if placements else {}
    )
    return {
        each.profile: Shape(
            each.profile.slices, places[each.profile_id].size, places[each.profile_id].starts, each.total
        )
        for each in (offers.found if offers else ())
        if each.gpu == gpu.index and each.profile_id in places
    }


def _shape(profile: Profile, instances: Sequence[tuple[Profile, Shape]]) -> Shape:
    return next(shape for each, shape in instances if each is profile)


def _compute(gpu: Gpu, told: Mapping[Profile, Shape]) -> int:
    if told:
        return max(shape.compute for shape in told.values())
    return 4 if _of_quarters(gpu) else 7


def _of_quarters(gpu: Gpu) -> bool:
    return any(part.startswith(_QUARTERS) for part in gpu.product.split("-"))


def _known(profile: Profile, gpu: Gpu) -> Shape:
    """By the grid of the model. Raises NotKnown for a profile of no known shape."""
    if _of_quarters(gpu):
        shape = _GRID_OF_FOUR.get(profile.slices)
    else:
        shape = _GRID_OF_SEVEN.get((profile.slices, _eighths(profile, gpu)))
    if shape is None:
        raise NotKnown(Unknown(Reason.NOT_ASKED, f"where {profile} may lie is not known", str(gpu)))
    return shape


def _eighths(profile: Profile, gpu: Gpu) -> int:
    """The share of the memory that the profile's name tells."""
    total = gpu.memory_total
    if not total:
        return {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}.get(profile.slices, 0)
    return min(
        range(1, _EIGHTHS + 1),
        key=lambda eighths: abs(gigabytes(total * eighths / _EIGHTHS, total) - profile.gigabytes),
    )


def _order(shape: Shape) -> tuple[int, int]:
    """Those with the fewest places first."""
    return len(shape.starts), -shape.size


def _placed(shapes: Sequence[Shape], taken: tuple[tuple[int, int], ...]) -> bool:
    if not shapes:
        return True
    first, rest = shapes[0], shapes[1:]
    for start in first.starts:
        end = start + first.size
        if all(end <= begin or start >= stop for begin, stop in taken) and _placed(
            rest, (*taken, (start, end))
        ):
            return True
    return False
