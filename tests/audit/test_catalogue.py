"""Checks come from an entry-point group; one that does not load is reported, not fatal."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from pytest_mock import MockerFixture

from gpuctl.audit.catalogue import GROUP, Catalogue, UnknownName, catalogue
from tests.audit.helpers import check


def test_own_checks_are_found_and_load() -> None:
    found = catalogue()
    assert found.broken == ()
    assert "kueue-webhooks" in [each.id for each in found.checks]


@pytest.mark.parametrize(
    ("value", "says"),
    [("no.such.module:CHECK", "ModuleNotFoundError"), ("json:dumps", "is not a gpuctl check")],
)
def test_what_does_not_load_is_named(mocker: MockerFixture, value: str, says: str) -> None:
    mocker.patch("gpuctl.audit.catalogue.entry_points", return_value=[EntryPoint("other", value, GROUP)])
    (broken,) = catalogue().broken
    assert broken.id == "other"
    assert says in broken.error


def test_a_mistyped_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'pods-test'"):
        Catalogue((check(),)).select(["pod-test"])
    assert Catalogue((check(),)).select(["pods-test"]).checks[0].id == "pods-test"
