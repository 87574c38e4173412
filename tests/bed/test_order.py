"""The order in which the bed's tests begin."""

from pathlib import Path

from tests.cluster import conftest


def test_what_is_to_begin_first_is_there() -> None:
    folder = Path(conftest.__file__).parent
    assert [name for name in conftest.LONGEST_FIRST if not (folder / name).exists()] == []
    assert len({*conftest.LONGEST_FIRST}) == len(conftest.LONGEST_FIRST)
