"""What README and docs show is what the program does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gpuctl.runbook.catalogue import BOOKS
from tests.cli.program import gpuctl
from tests.docs.sessions import PAGES, ROOT, commands, gpuctl_commands, replayed, sessions

SESSIONS = [(page.relative_to(ROOT), session) for page in PAGES for session in sessions(page)]
COMMANDS = sorted({command for page in PAGES for command in gpuctl_commands(page)})


def test_there_are_sessions() -> None:
    assert any(page == Path("README.md") for page, _ in SESSIONS)


@pytest.mark.parametrize(
    ("page", "session"), SESSIONS, ids=[f"{page}: {commands(session)[0]}" for page, session in SESSIONS]
)
def test_a_session_is_what_the_program_prints(page: Path, session: str) -> None:
    assert replayed(session) == session, "run make sessions"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shown_exists_with_its_options(command: str) -> None:
    """Each verb's help knows every option that the command is shown with."""
    words = shlex.split(command.removeprefix("kubectl ").partition(" #")[0].partition(" | ")[0])[1:]
    verbs = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]
    verb = verbs[:1] if words and words[0] in verbs else []
    help_text = _help(verb, words[1] if len(words) > 1 else "")
    options = [word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)]
    missing = [option for option in options if not re.search(rf"(^|\s){re.escape(option)}[,\s]", help_text)]
    assert not missing, f"{command}: {missing}"


def _help(verb: list[str], first: str) -> str:
    """The help that a command is made of: of the verb, or of the verb with its first word."""
    help_text = gpuctl(*verb, "--help").stdout
    if verb == ["apply"] and first.endswith(".json"):
        return gpuctl(*verb, str(ROOT / "pyproject.toml"), "--help").stdout  # of any file
    if verb and (first in BOOKS or ("Commands:" in help_text and first and first in help_text)):
        return gpuctl(*verb, first, "--help").stdout
    return help_text


def test_pages_link_to_what_exists() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"
