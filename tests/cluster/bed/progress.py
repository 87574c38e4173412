"""What the bed tells whoever waits for it: on stderr, for stdout is for `export KUBECONFIG=…` alone."""

import sys
import time

_started = time.monotonic()


def say(what: str) -> None:
    """One line of progress, with the seconds since the program began."""
    print(f"{time.monotonic() - _started:6.1f}s  {what}", file=sys.stderr, flush=True)
