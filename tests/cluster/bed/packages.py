"""What comes from Debian: the container runtime, its network plugins, a shell for the test images, `ip`."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .progress import say

CNI_PLUGINS = Path("/usr/lib/cni")
BUSYBOX = Path("/usr/bin/busybox")
EVIDENCE = {  # a file of each package, the cheapest way to see that it is there
    "containerd": "/usr/bin/containerd",
    "runc": "/usr/sbin/runc",
    "containernetworking-plugins": f"{CNI_PLUGINS}/bridge",
    "busybox-static": str(BUSYBOX),
    "iproute2": "/usr/bin/ip",
}
PROMETHEUS = {"prometheus": "/usr/bin/prometheus"}  # only for those who ask for it
ALERTMANAGER = {"prometheus-alertmanager": "/usr/bin/prometheus-alertmanager"}  # likewise
LOCK = Path("/var/lock/gpuctl-bed-packages")
SERVICES_STAY_DOWN = Path("/usr/sbin/policy-rc.d")  # asked by Debian's packages before they start a service


class Missing(RuntimeError):
    """This machine can't carry a bed; the message says what it lacks."""


def check() -> None:
    """Raise Missing unless a bed can be made here, at most after building and installing."""
    if os.geteuid() != 0:
        raise Missing("a bed makes namespaces and mounts: it needs root")
    if not shutil.which("go"):
        raise Missing("building the components needs go on PATH")
    if absent() and not shutil.which("apt-get"):
        raise Missing(f"not installed: {', '.join(absent())}")


def absent(wanted: Mapping[str, str] = EVIDENCE) -> list[str]:
    return [package for package, file in wanted.items() if not Path(file).exists()]


def ensure(wanted: Mapping[str, str] = EVIDENCE) -> None:
    """Install what is absent, without starting any service. Tests in two processes take turns."""
    if not absent(wanted):
        return
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if packages := absent(wanted):
            say(f"installing {', '.join(packages)} (once)")
            with _services_stay_down():
                _apt_get("update", "-qq")
                _apt_get("install", "-qq", "-y", "--no-install-recommends", *packages)


def _apt_get(*arguments: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ("apt-get", *arguments),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Missing(f"apt-get {arguments[0]} failed:\n{done.stdout}")


@contextmanager
def _services_stay_down() -> Iterator[None]:
    if SERVICES_STAY_DOWN.exists():  # the machine has a policy of its own
        yield
        return
    SERVICES_STAY_DOWN.write_text("#!/bin/sh\nexit 101\n")
    SERVICES_STAY_DOWN.chmod(0o755)
    try:
        yield
    finally:
        SERVICES_STAY_DOWN.unlink()
