"""A run whose first eviction takes a while: a process to be interrupted."""

from __future__ import annotations

import json
import time
from typing import Any

import typer

from gpuctl.cli.border import guarded, warn
from gpuctl.cli.endings import leave
from gpuctl.cli.stopping import stoppable
from tests.runbook.little import World


def main() -> None:
    world = World()

    def takes_a_while(call: Any) -> None:
        if call.verb == "evict" and not world.left:
            print("evicting", flush=True)
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                time.sleep(0.05)

    def tells(call: Any) -> None:
        if call.verb == "evict":
            print("evicted", flush=True)

    world.writer.before, world.writer.after = takes_a_while, tells
    with stoppable() as stop:
        ending = world.begin(world.crew(stop=stop, tell=warn))
    state = {
        "outcome": world.run().outcome,
        "state": world.run().state,
        "holders": [each["spec"]["holderIdentity"] for each in world.leases.values()],
        "evictions": len(world.left),
    }
    try:
        leave(ending)
    finally:
        print(json.dumps(state), flush=True)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    guarded(lambda: app([]))
