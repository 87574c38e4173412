"""Looks into two nodes that have no pods, as `--probe auto` does, four times in two readings, as runbooks do:
prints how many debug pods were made.

Its argument is for how many seconds a question waits.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from gpuctl.cli import looking
from gpuctl.cluster import probe
from gpuctl.cluster.connection import Connection
from gpuctl.cluster.deadline import Deadline
from gpuctl.cluster.reviews import Reviews
from gpuctl.cluster.sink import NoSink
from gpuctl.nvidia.listing import parse_listing
from tests.cluster_door.test_probe import LISTING, Cluster, target


def main(patience: float) -> None:
    flags: Any = {
        "probe": "auto",
        "node": None,
        "selector": "",
        "probe_timeout": "5s",
        "probe_namespace": "gpuctl-system",
        "probe_image": "busybox:1.37",
    }
    probing = looking._looking(**flags).probing
    cluster, deadline = Cluster(), Deadline.after(2 * patience)
    connection = cast("Connection", cluster)
    for _ in range(2):
        prober = probe.Prober(connection, deadline, NoSink(), Reviews(connection, deadline), probing)
        for _ in range(2):  # no later look asks again
            prober.commands([(LISTING, parse_listing)], [target("a"), target("b")])
        prober.close()
    print(len(cluster.made))


if __name__ == "__main__":
    main(float(sys.argv[1]))
