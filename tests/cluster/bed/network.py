"""Addresses of a bed, and the one link between its machine and the outside.

Services and pods have the same addresses in every bed: they exist inside its network namespace only.
Just the link's two addresses, and its name, are numbered.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from .machine import Machine

SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
PODS = "10.97.0.0/16"
SIMULATED_PODS = "10.98.0.1/16"


@dataclass(frozen=True)
class Link:
    """A veth pair: one end here, the other in the machine."""

    number: int

    @property
    def name(self) -> str:
        return f"gpuctl-bed{self.number}"

    @property
    def outside(self) -> str:
        return f"10.210.{self.number}.1"

    @property
    def inside(self) -> str:
        return f"10.210.{self.number}.2"

    @property
    def exists(self) -> bool:
        return Path(f"/sys/class/net/{self.name}").exists()

    def connect(self, machine: Machine) -> None:
        """Make the pair. The API server's service address is one of the machine's own: pods reach it."""
        _ip("link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", str(machine.init))
        _ip("address", "add", f"{self.outside}/30", "dev", self.name)
        _ip("link", "set", self.name, "up")
        machine.run("ip", "address", "add", f"{self.inside}/30", "dev", "eth0")
        machine.run("ip", "link", "set", "eth0", "up")
        machine.run("ip", "address", "add", f"{API_SERVICE}/32", "dev", "lo")

    def remove(self) -> None:
        """The link goes with the machine's namespace, a moment later; this is for not having to wait."""
        if self.exists:
            subprocess.run(("ip", "link", "delete", self.name), stderr=subprocess.DEVNULL, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True)
