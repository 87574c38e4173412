"""Quantities, by Kubernetes' rules: exact, in whole billionths, the finest that Kubernetes keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache
from typing import TypeAlias

from gpuctl.facts.state import NotKnown, Reason, Unknown

Written: TypeAlias = int | float | str
Amount: TypeAlias = int  # in billionths of the resource's unit
Amounts: TypeAlias = Mapping[str, Amount]  # by resource

ONE: Amount = 10**9
_FORM = re.compile(r"([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_LARGEST_EXPONENT = 40
_DIGITS = 200
_IN_BYTES = re.compile(r"(?:^|[./-])(?:memory|storage|hugepages-.*)$")


@lru_cache(maxsize=65536)
def amount(written: Written) -> Amount:
    """What a quantity is worth; finer than a billionth is rounded up. Raises NotKnown if it is none."""
    match = _FORM.fullmatch(str(written).strip())
    if match is None:
        raise _malformed(written)
    number, suffix = match.group(1), match.group(2) or ""
    with localcontext(prec=_DIGITS):
        scaled = Decimal(number) * _scale(suffix, written) * ONE
        return int(scaled.to_integral_value(ROUND_CEILING))


def _scale(suffix: str, written: Written) -> Decimal:
    if suffix in _BINARY:
        return Decimal(1024) ** _BINARY[suffix]
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    if abs(exponent) > _LARGEST_EXPONENT:
        raise _malformed(written)
    return Decimal(10) ** exponent


def _malformed(written: Written) -> NotKnown:
    return NotKnown(Unknown(Reason.MALFORMED, f"{written!r} is not a quantity", "a quantity"))


def shown(value: Amount, resource: str = "") -> str:
    """The quantity as a person would write it: `7`, `500m`, and of memory `20Gi`."""
    if value and value % ONE == 0 and _IN_BYTES.search(resource):
        return _in_binary(value // ONE)
    for suffix, step in (("", ONE), ("m", 10**6), ("u", 10**3)):
        if value % step == 0:
            return f"{value // step}{suffix}"
    return f"{value}n"


def _in_binary(whole: int) -> str:
    for suffix, power in reversed(_BINARY.items()):
        if whole % 1024**power == 0:
            return f"{whole // 1024**power}{suffix}"
    return str(whole)


def amounts(written: Mapping[str, Written]) -> dict[str, Amount]:
    """The worth of each."""
    return {resource: amount(each) for resource, each in written.items()}


def total(parts: Iterable[Amounts]) -> dict[str, Amount]:
    """The sum of several, by resource."""
    found: dict[str, Amount] = {}
    for part in parts:
        for resource, value in part.items():
            found[resource] = found.get(resource, 0) + value
    return found


def largest(parts: Iterable[Amounts]) -> dict[str, Amount]:
    """The largest of several, by resource."""
    found: dict[str, Amount] = {}
    for part in parts:
        for resource, value in part.items():
            found[resource] = max(found.get(resource, 0), value)
    return found


def times(count: int, part: Amounts) -> dict[str, Amount]:
    """So many of the same."""
    return {resource: count * value for resource, value in part.items()}


_BY_NAME = r"(?:.*[./])?(?:gpu|mig-[\w.+-]+|gpu\.shared|tpu|pgpu|vgpu)"
_BY_VENDOR = {
    r"nvidia\.com": r"(?:[pv]?gpu|mig|grid|tesla|quadro|rtx|(?:[abhlptv]|g[abhv]|ad|tu)\d).*",
    r"amd\.com": r"gpu.*|[cdqst]px_nps\d",
    r"gpu\.intel\.com": r"i915|xe",
    r"habana\.ai": r"gaudi.*",
    r"huawei\.com": r"(?:ascend|npu).*",
    r"aws\.amazon\.com": r"neuron(?:core|device)?",
    r"cambricon\.com": r"v?mlu.*",
    r"hygon\.com": r"dcu.*",
    r"iluvatar\.(?:ai|com)": r"v?gpu.*",
    r"metax-tech\.com": r"s?gpu.*",
    r"mthreads\.com": r"[sv]?gpu.*",
    r"enflame\.com": r"v?gcu.*",
    r"kunlunxin\.com": r"v?xpu.*",
    r"qualcomm\.com": r"qaic.*",
    r"volcano\.sh": r"vgpu.*",
}
_ACCELERATORS = re.compile(
    "|".join((_BY_NAME, *(f"{domain}/(?:{names})" for domain, names in _BY_VENDOR.items()))), re.IGNORECASE
)
# Memory and cores of a GPU, which often a scheduler of their own counts.
_SHARES = re.compile(
    r"(?:.*[./])?(?:[psv]?gpu|vcuda|ascend\w*|npu|v?mlu|dcu)[-._]?(?:mem(?:ory)?|cores?)(?:[-._]\w+)*",
    re.IGNORECASE,
)


def is_accelerator(resource: str) -> bool:
    """Whether a resource is what people queue for: GPUs, slices of them, and their kin."""
    return _ACCELERATORS.fullmatch(resource) is not None and not is_share(resource)


def is_share(resource: str) -> bool:
    """Whether a resource is an amount of a GPU's memory or cores."""
    return _SHARES.fullmatch(resource) is not None
