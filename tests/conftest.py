"""Snapshots that tests of several rooms judge."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.cli.program import HEALTHY


@pytest.fixture(scope="session")
def unproven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The healthy cluster, of which nobody has tried anything."""
    folder = tmp_path_factory.mktemp("unproven") / "healthy"
    shutil.copytree(HEALTHY, folder, ignore=shutil.ignore_patterns("dry-run", "tls"))
    return folder


# How long an example takes says something of the machine's other work, not of the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
