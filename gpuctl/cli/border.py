"""The border to the person: every error becomes a sentence on stderr and an exit code, never a traceback."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from gpuctl import __version__

USAGE = 2
INCOMPLETE = 3
INTERRUPTED = 130
_A_MOMENT = 0.01  # seconds
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)


class Stop(Exception):
    """Ends the command with a message a person can act on."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code


def guarded(run: Callable[[], object]) -> NoReturn:
    """Runs the program and leaves it. The one broad except of the command line is here."""
    for each in (signal.SIGTERM, signal.SIGALRM):  # what is begun is put away, whichever signal it is
        signal.signal(each, signal.default_int_handler)
    sys.unraisablehook = _unless_interrupted
    _open_what_is_closed()
    try:
        run()
    except Stop as stop:
        _leave(str(stop), stop.code)
    except KeyboardInterrupt:
        _leave("interrupted", INTERRUPTED)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:  # typer has made it of the KeyboardInterrupt
            _leave("interrupted", INTERRUPTED)
        _exit(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
    except OSError as error:
        if error.errno not in FULL:
            _leave(_paste_able(error), INCOMPLETE)
        _leave(f"the output could not be written whole: {error.strerror}", INCOMPLETE)
    except Exception as error:  # noqa: BLE001 - the border to the person: a bug must not look like a verdict
        _leave(_paste_able(error), INCOMPLETE)
    _exit(0)


def _unless_interrupted(dropped: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised in a callback of a weak reference, or in `__del__`. An interruption that
    comes just then must not get lost: it comes once more, a moment later."""
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _A_MOMENT)
    else:
        sys.__unraisablehook__(dropped)


def _open_what_is_closed() -> None:
    """A stream that whoever starts the program has closed is None to Python, and the next file that is opened
    would take its place. What is written to stdout then fails, as on a full disk: a result must not get lost
    unnoticed. What is said on stderr was not wanted."""
    for number, name, mode in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_RDONLY),
        (2, "stderr", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


def warn(message: str) -> None:
    """Tells the person something beside the result. stdout belongs to data alone."""
    sys.stderr.write(f"gpuctl: {_shown(message)}\n")  # in one piece: reads in other threads tell things too


def _shown(message: str) -> str:
    from gpuctl.report.plain import plain

    return "\n".join(plain(line) for line in message.split("\n"))


def _leave(message: str, code: int) -> NoReturn:
    warn(message)
    _exit(code)


def _exit(code: int) -> NoReturn:
    """Leaves at once: reads that hang in other threads must not hold the person up."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or INCOMPLETE  # the output did not arrive whole
    os._exit(code)


def _paste_able(error: Exception) -> str:
    import platform
    import traceback

    frames = "".join(traceback.format_exception(error)).rstrip()
    lines = (
        f"this is a mistake in gpuctl {__version__}, not a verdict; please report it with the lines below",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        frames,
    )
    return "\n".join(lines)
