"""The Go components of the bed: built once from pinned modules, kept in a cache outside the checkout.

A binary is named by a hash of everything it is made from, so a cache hit needs no further check, and
two checkouts with different versions share one cache without getting in each other's way.
"""

import fcntl
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .progress import say

MODULES = Path(__file__).parent.parent / "components"
NICENESS = 10  # of the compiler: whoever works on the machine goes first


@dataclass(frozen=True)
class Component:
    """A binary of the bed: the folder of its Go module, and the tool of that module."""

    name: str
    module: str
    package: str
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        return MODULES / self.module

    def flags(self) -> tuple[str, ...]:
        """Flags of `go build`; without the variables a client can't parse the API server's version."""
        variables = "".join(f" -X {name}={value}" for name, value in self.variables)
        return "-trimpath", "-buildvcs=false", f"-ldflags=-s -w{variables}"

    def key(self) -> str:
        """A hash of what the binary is made from."""
        digest = hashlib.sha256()
        for part in (self.package, go_version(), *self.flags()):
            digest.update(part.encode() + b"\0")
        for file in ("go.mod", "go.sum", *self._own()):
            digest.update((self.folder / file).read_bytes())
        return digest.hexdigest()[:16]

    def _own(self) -> list[str]:
        """The source files of a program of our own, which lies beside the go.mod."""
        if not self.package.startswith("./"):
            return []
        return sorted(
            str(file.relative_to(self.folder)) for file in (self.folder / self.package).glob("*.go")
        )

    def binary(self) -> Path:
        return cache_folder() / f"{self.name}-{self.key()}"


def _kubernetes_version() -> Iterator[tuple[str, str]]:
    """The variables that a release build of Kubernetes sets."""
    pinned = re.search(
        r"k8s\.io/kubernetes (v(\d+)\.(\d+)\.\d+)", (MODULES / "kubernetes/go.mod").read_text()
    )
    assert pinned
    version, major, minor = pinned.groups()
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        for name, value in values.items():
            yield f"{package}.{name}", value


def _kubernetes(name: str) -> Component:
    return Component(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", tuple(_kubernetes_version()))


ETCD = Component("etcd", "etcd", "go.etcd.io/etcd/server/v3")
APISERVER = _kubernetes("kube-apiserver")
CONTROLLER_MANAGER = _kubernetes("kube-controller-manager")
SCHEDULER = _kubernetes("kube-scheduler")
KUBELET = _kubernetes("kubelet")
DEVICE_PLUGIN = Component("device-plugin", "kubernetes", "./device-plugin")  # for tests that need one
KUEUE = Component("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue")
KWOK = Component("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok")
ALL = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER, KUBELET, KUEUE, KWOK)


def cache_folder() -> Path:
    """$GPUCTL_BED_CACHE, or gpuctl-bed in the user's cache folder."""
    if chosen := os.environ.get("GPUCTL_BED_CACHE"):
        return Path(chosen).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuctl-bed"


@cache
def go_version() -> str:
    return _go("env", "GOVERSION")


@cache
def source(module: str, path: str) -> Path:
    """The unpacked source of a Go module, for the manifests it brings. Read-only."""
    _go("mod", "download", path, folder=MODULES / module)
    return Path(_go("list", "-m", "-f", "{{.Dir}}", path, folder=MODULES / module))


def ensure(components: tuple[Component, ...] = ALL) -> None:
    """Build what the cache lacks. A second caller waits for the first and finds its work done."""
    if not _missing(components):
        return
    with _alone(), ThreadPoolExecutor(1) as meanwhile:
        modules: dict[str, Component] = {}
        for component in _missing(components):
            modules.setdefault(component.module, component)
        for component in [*modules.values()][1:]:
            meanwhile.submit(_fetch, component)
        for component in _missing(components):
            _build(component)


def _missing(components: tuple[Component, ...]) -> list[Component]:
    return [each for each in components if not each.binary().exists()]


def _fetch(component: Component) -> None:
    """Download what it is made from, ahead of the compiler, which would wait for it."""
    _go("list", "-deps", "-f", "{{with .Module}}{{end}}", component.package, folder=component.folder)


def _build(component: Component) -> None:
    say(f"building {component.name} (once)")
    target = component.binary()
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        _go("build", *component.flags(), "-o", str(unfinished), component.package, folder=component.folder)
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _alone() -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go(*arguments: str, folder: Path | None = None) -> str:
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        ("nice", "-n", str(NICENESS), "go", *arguments),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


if __name__ == "__main__":
    ensure()
