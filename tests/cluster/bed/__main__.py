"""python -m tests.cluster.bed up|down|build: what `make cluster` and `make cluster-down` do."""

import sys
from subprocess import CalledProcessError

from . import build, lifecycle, packages
from .progress import say
from .wait import TooLong

USAGE = "usage: python -m tests.cluster.bed up|down|build"


def main(arguments: list[str]) -> int:
    """Carry out one command; stdout gets what a shell may evaluate, and nothing else."""
    match arguments:
        case ["up"]:
            bed = lifecycle.up()
            say(f"up; the components' logs are in {bed.logs}")
            print(f"export KUBECONFIG={bed.kubeconfig}")
        case ["down"]:
            lifecycle.down()
        case ["build"]:
            packages.ensure()
            build.ensure()
        case _:
            print(USAGE, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (RuntimeError, TooLong, CalledProcessError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
