"""Lists all pods as gpuctl does, and says how it went: seconds, pods, peak of memory in MiB."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import ClassVar

from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.live import LiveReader
from gpuctl.facts.fact import Objects
from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Kind, View
from gpuctl.facts.objects import Pod, _Part


class Name(_Part, frozen=True):
    name: str
    namespace: str = ""


class Spec(_Part, frozen=True):
    node_name: str = ""


class Status(_Part, frozen=True):
    phase: str = ""


class WherePodsAre(View, frozen=True):
    """The fields that are in use here, and no others."""

    of: ClassVar[Kind] = Pod.of
    metadata: Name  # type: ignore[assignment]
    spec: Spec = Spec()
    status: Status = Status()


def main(kubeconfig: str) -> None:
    connection = connect(Access(kubeconfig=kubeconfig))
    pods = Objects(WherePodsAre)
    began = time.perf_counter()
    facts = gather([pods], LiveReader(connection, 120), {})
    took = time.perf_counter() - began
    print(f"{took:.3f} {sum(1 for _ in facts[pods])} {peak()}")


def peak() -> int:
    """The most memory this program ever had, in MiB. (getrusage would count its parent's.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


if __name__ == "__main__":
    main(str(Path(sys.argv[1])))
