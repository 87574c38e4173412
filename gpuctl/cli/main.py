"""The program, and the border around it: all that takes time to import is imported inside of it."""

from __future__ import annotations

import gc

from gpuctl.cli.border import guarded

_SELDOM = 50_000  # objects: what is read of a large cluster forms no cycles, and is looked for in vain


def main() -> None:
    """The entry point of `gpuctl` and `kubectl-gpuctl`."""
    gc.set_threshold(_SELDOM)
    guarded(_run)


def _run() -> None:
    from gpuctl.cli.app import app

    app()
