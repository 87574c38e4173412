"""`--probe auto` on a terminal: it asks once, in words, and who does not say yes gets no debug pod."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

PROGRAM = [sys.executable, "-m", "tests.cli.question"]
QUESTION = b"Make one privileged debug pod on each"


def told(terminal: int, until: bytes, seconds: float = 20) -> bytes:
    """What a terminal shows, up to some words or the end."""
    shown = b""
    ends = time.monotonic() + seconds
    while until not in shown and time.monotonic() < ends:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        try:
            shown += os.read(terminal, 4096) if ready else b""
        except OSError:  # the other side is gone
            break
    return shown


def on_a_terminal(answer: bytes | None, patience: str = "20") -> tuple[str, bytes]:
    """The number of debug pods that were made, and what the terminal showed."""
    terminal, its = pty.openpty()
    process = subprocess.Popen([*PROGRAM, patience], stdin=its, stderr=its, stdout=subprocess.PIPE, text=True)
    os.close(its)
    shown = told(terminal, b"to agree")
    if answer is not None:
        os.write(terminal, answer)
    shown += told(terminal, b"\x00", 0.5)
    made, _ = process.communicate(timeout=60)
    shown += told(terminal, b"\x00", 1)
    os.close(terminal)
    return made.strip(), shown


@pytest.mark.parametrize(
    ("answer", "pods"),
    [(b"y\n", "8"), (b"YES\n", "8"), (b"n\n", "0"), (b"\n", "0"), (b"what?\n", "0"), (b"\x04", "0")],
)
def test_it_asks_once_and_takes_only_yes_for_yes(answer: bytes, pods: str) -> None:
    made, shown = on_a_terminal(answer)
    assert made == pods
    assert shown.count(QUESTION) == 1
    assert b"2 nodes have no pod with nvidia-smi" in shown
    assert (b"no debug pod is made" in shown) is (pods == "0")


def test_who_does_not_answer_in_time_does_not_agree() -> None:
    made, shown = on_a_terminal(None, patience="2")
    assert made == "0"
    assert b"within 2 s" in shown


@pytest.mark.parametrize("of", ["stdin", "stderr"])
def test_where_there_is_no_terminal_nobody_is_asked(of: str) -> None:
    terminal, its = pty.openpty()
    stdin, stderr = (subprocess.PIPE if each == of else its for each in ("stdin", "stderr"))
    process = subprocess.Popen(
        [*PROGRAM, "20"], stdin=stdin, stderr=stderr, stdout=subprocess.PIPE, text=True
    )
    os.close(its)
    made, shown = process.communicate(timeout=60)
    assert made.strip() == "0"
    assert QUESTION not in told(terminal, b"\x00", 0.5) + (shown or "").encode()
    os.close(terminal)
