"""Fixtures of tests that need a real cluster: one bed for the whole run, and what keeps tests apart on it."""

import os
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from .bed import Bed, lifecycle, packages
from .bed.kueue import Kueue
from .bed.users import Rule

LONGEST = 300  # seconds for one test, bringing the bed up included
NONE: Mapping[str, Iterable[Rule]] = MappingProxyType({})
LOGS = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """A cluster of this run's own; with GPUCTL_BED_KEEP=1 the one of `make cluster`, which stays."""
    require_prerequisites()
    if os.environ.get("GPUCTL_BED_KEEP") == "1":
        bed = lifecycle.up()
        request.config.stash[LOGS] = bed.logs
        yield bed
        return
    request.config.stash[LOGS] = tmp_path_factory.getbasetemp() / "cluster-logs"
    with lifecycle.temporary(logs=request.config.stash[LOGS]) as bed:
        yield bed


@pytest.fixture
def namespace(bed: Bed) -> Iterator[str]:
    """A namespace that no other test uses."""
    name = f"test-{secrets.token_hex(3)}"
    bed.kubectl("create", "namespace", name)
    bed.kubectl("-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    yield name
    bed.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def user(bed: Bed) -> Iterator[Callable[..., Path]]:
    """`user(name, rules, namespaced)`: as bed.user, with rights that end with the test."""
    names: list[str] = []

    def add(name: str, rules: Iterable[Rule] = (), namespaced: Mapping[str, Iterable[Rule]] = NONE) -> Path:
        names.append(name)
        return bed.user(name, rules, namespaced)

    yield add
    for name in names:
        bed.users.remove(name)


@pytest.fixture
def kueue(bed: Bed) -> Iterator[Kueue]:
    """Kueue for a test that breaks it; healthy again for the next one."""
    yield bed.kueue
    bed.kueue.restore()


def require_prerequisites() -> None:
    """Skip where no bed can be made; CI is to fail there instead."""
    try:
        packages.check()
    except packages.Missing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no cluster can be made here: {missing}")
        pytest.skip(f"no cluster can be made here: {missing}")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the bed is a cluster test, and gets the time to bring it up."""
    for item in items:
        if "bed" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(LONGEST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure says where the logs of the cluster's components are."""
    report = yield
    if report.failed and LOGS in item.config.stash and "bed" in getattr(item, "fixturenames", ()):
        report.sections.append(("the cluster", f"logs of its components: {item.config.stash[LOGS]}"))
    return report
