"""A name that there is not is answered with those that begin like it, or else with the nearest one."""

from __future__ import annotations

import pytest

from gpuctl.audit.nearest import meant

KNOWN = ("kueue-webhooks", "kwh-drill", *(f"KWH{number:03}" for number in range(1, 14)), "CQG001", "KWH091")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("KWH01", "did you mean 'KWH010', 'KWH011', 'KWH012' or 'KWH013'?"),
        ("kwh", "did you mean 'kwh-drill'?"),
        ("kwh01", "did you mean 'KWH010', 'KWH011', 'KWH012' or 'KWH013'?"),
        ("KWH09", "did you mean 'KWH091'?"),
        ("KWH", "did you mean one of the 14 from 'KWH001' to 'KWH091'?"),
        ("kueue-webhook", "did you mean 'kueue-webhooks'?"),
        ("kueue-webhoks", "did you mean 'kueue-webhooks'?"),
        ("KHW001", "did you mean 'KWH001'?"),
        ("x-y-z", ""),
        ("", ""),
    ],
)
def test_what_is_meant(name: str, says: str) -> None:
    assert meant(name, KNOWN, cutoff=0.4) == says
