#!/usr/bin/env -S python3 -I -S
"""lspci as a stand-in: `lspci -Dn -d 10de:` from the state file of the nvidia-smi stand-in."""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STATE = "/var/lib/gpuctl-standin/nvidia-smi.json"
USAGE = "lspci: only `lspci -Dn -d 10de:` is answered here\n"


def line_of(gpu: dict[str, Any]) -> str:
    """One GPU as a 3D controller, whether the driver sees it or not."""
    address = gpu["bus_id"][4:].lower()
    return f"{address} 0302: 10de:{gpu['device_id'][:4].lower()} (rev a1)\n"


def main() -> int:
    """Read the state and answer."""
    if sorted(sys.argv[1:]) not in (["-Dn", "-d", "10de:"], ["-D", "-d", "-n", "10de:"]):
        sys.stderr.write(USAGE)
        return 1
    try:
        with open(os.environ.get("NVIDIA_SMI_STATE", STATE), encoding="utf-8") as file:
            gpus = json.load(file)["gpus"]
    except FileNotFoundError:
        return 0
    sys.stdout.writelines(sorted(line_of(gpu) for gpu in gpus))
    return 0


if __name__ == "__main__":
    sys.exit(main())
