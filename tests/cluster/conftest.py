"""Fixtures of tests that need a real cluster: one bed for the whole run, and what keeps tests apart on it."""

import os
import secrets
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from gpuctl.cluster.live import LiveReader
from gpuctl.facts.own import RUN

from .bed import Bed, lifecycle, packages
from .bed.kueue import Kueue
from .bed.users import Rule
from .bed.workloads import Workloads
from .drilling import Person, somebody, somebodys_queue
from .test_queue_growth import GPU, Queues

LONGEST = 900  # seconds for one test: more than its own limits together, bringing the bed up included
LONGEST_FIRST = (
    "test_webhook_proof.py",
    "test_mig_reconfigure.py",
    "test_mig_consistency.py",
    "test_queue_growth.py",
    "test_kueue_webhooks.py",
    "test_vllm_mode.py",
    "test_faults.py",
    "test_api_faults.py",
    "test_flavor_impact.py",
    "test_runbook_permissions.py",
    "test_standins.py",
    "test_mig_recover.py",
    "test_drain.py",
)
NONE: Mapping[str, Iterable[Rule]] = MappingProxyType({})
SOON = 1.0  # seconds
STATE = "gpuctl-system"
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
def work(bed: Bed, namespace: str) -> Workloads:
    """Pods of all kinds, in that namespace."""
    return Workloads(bed, namespace)


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
def state_namespace(bed: Bed) -> Iterator[str]:
    """Where gpuctl keeps its locks and journals; of no run but the test's own."""
    if not bed.kubectl("get", "namespace", STATE, "--ignore-not-found", "-o", "name"):
        bed.kubectl("create", "namespace", STATE)
    forget_runs(bed)
    yield STATE
    forget_runs(bed)


def forget_runs(bed: Bed) -> None:
    """No lock and no journal any more, in whatever namespace."""
    bed.kubectl("delete", "configmaps,leases.coordination.k8s.io", "--all-namespaces", "-l", RUN)


@pytest.fixture(scope="module")
def quick_second_looks() -> Iterator[None]:
    """What is looked at again after a while is looked at again soon, by gpuctl in this process: the stand-ins
    are a hundred times quicker than what they stand for."""
    later = LiveReader.later
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LiveReader, "later", lambda reader, seconds: later(reader, min(seconds, SOON)))
        yield


@pytest.fixture
def kueue(bed: Bed) -> Iterator[Kueue]:
    """Kueue for a test that breaks it; healthy again for the next one."""
    yield bed.kueue
    bed.kueue.restore()


@pytest.fixture
def queues(bed: Bed, namespace: str) -> Iterator[Queues]:
    """What tests make of queues, on a node with four GPUs."""
    bed.gpu_capacity(bed.node, {GPU: 4})
    made = Queues(bed, namespace)
    yield made
    made.remove()
    bed.gpu_capacity(bed.node, {GPU: 0})


@pytest.fixture
def busy_queue(bed: Bed, namespace: str) -> Iterator[Queues]:
    """A queue of somebody's, `busy`, with a Workload that runs and one that waits."""
    with somebodys_queue(bed, namespace) as made:
        yield made


@pytest.fixture
def driller(bed: Bed, tmp_path: Path) -> Iterator[Person]:
    """Who drills by a plan file, and keeps journals where they are kept by default."""
    with somebody(bed, tmp_path) as found:
        yield found


def pytest_configure() -> None:
    """Programs that tests interrupt must be able to hear it: what a shell runs in the background ignores
    Ctrl-C, and so would all that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
    """Whatever uses the bed is a cluster test, and gets the time to bring it up. The longest files go first,
    so that of several beds none has much to do when the others are done."""
    turns = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: turns.get(item.path.name, len(turns)))
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
