"""The program, and the border around it: all that takes time to import is imported inside of it."""

from __future__ import annotations

from gpuctl.cli.border import guarded


def main() -> None:
    """The entry point of `gpuctl` and `kubectl-gpuctl`."""
    guarded(_run)


def _run() -> None:
    from gpuctl.cli.app import app

    app()
