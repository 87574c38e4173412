"""gpuctl.yaml: what is misspelt in it is said, with the nearest name that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import HEALTHY, gpuctl

DECIDED = "reason: r, owner: o, expires: 2099-01-01"
WRONG = [
    (
        f"waivers: [{{code: KWH01, {DECIDED}}}]",
        "no installed check has the code 'KWH01'; did you mean 'KWH010', 'KWH011' or 'KWH012'?",
    ),
    (
        "severity: {KHW001: info}",
        "severity: no installed check has the code 'KHW001'; did you mean 'KWH001'?",
    ),
    (
        f"acceptUnknown: [{{assertion: kueue-webhooks/one-servise, {DECIDED}}}]",
        "fits no assertion of an installed check; did you mean 'kueue-webhooks/one-service'?",
    ),
]
RIGHT = f"""
severity: {{KWH001: warning}}
waivers: [{{code: KWH001, {DECIDED}}}]
acceptUnknown: [{{assertion: "kueue-*/one-*", {DECIDED}}}]
"""


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_a_name_that_there_is_not_is_said_with_the_nearest(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "gpuctl.yaml").write_text(text)
    wrong = gpuctl("config", "validate", cwd=tmp_path)
    assert wrong.returncode == 2
    assert says in wrong.stderr
    judged = gpuctl("check", "kueue-webhooks", "--from", HEALTHY, "-q", cwd=tmp_path)
    assert judged.returncode == 0
    assert says in judged.stderr


def test_names_that_there_are_are_valid(tmp_path: Path) -> None:
    (tmp_path / "gpuctl.yaml").write_text(RIGHT)
    result = gpuctl("config", "validate", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
