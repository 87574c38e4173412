"""Every output for CI, in full. To change one: `python -m tests.report.golden`, and read the difference."""

from __future__ import annotations

import pytest

from tests.report.golden import FOLDER, WRITERS, files
from tests.report.reports import REPORTS

FILES = list(files())


@pytest.mark.parametrize(("name", "report", "ending"), FILES, ids=[name for name, _, _ in FILES])
def test_the_output_is_the_stored_one(name: str, report: str, ending: str) -> None:
    stored = (FOLDER / name).read_bytes().decode("utf-8")
    assert WRITERS[ending](REPORTS[report]) == stored


def test_no_stored_output_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {name for name, _, _ in FILES}
