"""A gate that reads the JUnit file alone, and not the exit code, comes to the same end."""

from __future__ import annotations

from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.cli.program import DEGRADED, HEALTHY, gpuctl

CHECK = "kueue-webhooks"
UNPROVEN = "the healthy cluster without its proofs"


@pytest.mark.parametrize(
    ("arguments", "code", "case"),
    [
        ((HEALTHY,), 0, ""),
        ((HEALTHY, "-n", "default"), 3, "something was judged"),
        ((UNPROVEN, "--require-proof"), 3, "all that is required was judged"),
        ((UNPROVEN, "--min-coverage", "100"), 3, "all that is required was judged"),
        ((HEALTHY, "-n", "default", "--require", CHECK), 3, "something was judged"),
        ((DEGRADED, "--require-proof"), 1, ""),
    ],
)
def test_the_file_is_red_where_the_exit_code_is(
    tmp_path: Path, unproven: Path, arguments: tuple[str, ...], code: int, case: str
) -> None:
    file = tmp_path / "gpuctl.xml"
    source, *more = (str(unproven) if each == UNPROVEN else each for each in arguments)
    result = gpuctl("check", CHECK, "--from", source, *more, "-o", f"junit={file}")
    suites = JUnitXml.fromfile(str(file))
    assert result.returncode == code
    assert bool(suites.failures + suites.errors) == bool(code)
    added = [each.name for suite in suites for each in suite if each.classname == "gpuctl"]
    assert added == ([case] if case else [])
