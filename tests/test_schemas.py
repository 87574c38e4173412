"""The schemas in the repository are those of the code."""

from __future__ import annotations

import pytest

from tests.schemas import FOLDER, SCHEMAS, schema


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_stored_schema_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == schema(name), "run make schema"
