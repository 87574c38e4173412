"""What docs/flavors.md shows of a flavor's facts is what the program tells."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import pytest

from tests.cli.program import report
from tests.docs.sessions import ROOT, replayed

PAGE = (ROOT / "docs" / "flavors.md").read_text(encoding="utf-8")
SAMPLE = re.search(r"```sh\n(gpuctl .*?\|\s+jq .*?)```\n\n```json\n(.*?)```", PAGE, re.DOTALL)


def sample() -> tuple[str, dict[str, Any]]:
    """The command that asks for the facts, and the facts that it prints."""
    assert SAMPLE
    facts: dict[str, Any] = json.loads(SAMPLE.group(2))
    return " ".join(SAMPLE.group(1).split()), facts


def test_the_facts_are_those_of_the_flavor_that_is_asked_for() -> None:
    command, facts = sample()
    (check,) = report("flavor-impact", "--from", str(ROOT / "examples" / "degraded"))["checks"]
    told = {each["object"]["name"]: each["facts"] for each in check["subjects"]}
    assert [name for name in told if f'"{name}"' in command] == ["whole-h100"]
    assert facts == told["whole-h100"]


@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq here")
def test_the_command_prints_them() -> None:
    command, facts = sample()
    assert json.loads(replayed(f"$ {command}\n").partition("\n")[2]) == facts
