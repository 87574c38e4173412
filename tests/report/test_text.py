"""The report on terminals and in pipes, as whole screens."""

from __future__ import annotations

import io
import re

import msgspec
import pytest
from rich.console import Console

from gpuctl.audit.policy import Policy
from gpuctl.audit.report import AuditReport
from gpuctl.report.summary import summary
from gpuctl.report.text import canvas, draw
from tests.facts.views import node, pod
from tests.report.reports import BROKEN, CLEAN, EMPTY, HOSTILE, STRANGE, UNPROVEN, WAIVED, report

CLEAN_SCREEN = """\
pods-test: Pods in a test
-------------------------
√ every pod is good  2 looked at
√ every pod has a node  2 looked at
  2 of 2 reads done

snapshot memory, Kubernetes v1.36.3, taken 2026-11-30 10:00:00 UTC
Clean: every assertion was judged and holds.
"""

BROKEN_SCREEN = """\
pods-test: Pods in a test
-------------------------
× every pod is good  9 looked at
    × TST001 Pod default/bad-0 is a pod is bad
        7 alike: Pod default/bad-0, Pod default/bad-1, Pod default/bad-2, Pod default/bad-3, Pod default/bad-4 and 2 more (-v shows all)
        read 10:00:00  Pod default/bad-0 {.spec}: seen
        look  kubectl get -n default pods/bad-0
    ‼ TST002 Pod default/poor is a pod is poor
        read 10:00:00  Pod default/poor {.spec}: seen
        look  kubectl get -n default pods/poor
    i TST003 Pod default/note is a pod is noted
        read 10:00:00  Pod default/note {.spec}: seen
        look  kubectl get -n default pods/note
? every pod has a node  could not be judged
    ? nodes: forbidden: may not list nodes
  1 of 2 reads done; missing: nodes forbidden

What to do
----------
TST001, TST002 mend it
Each code is explained by: gpuctl explain CODE

snapshot memory, Kubernetes v1.36.3, taken 2026-11-30 10:00:00 UTC
Found 7 errors and 1 warning; 1 thing could not be judged, so this is no all-clear.
"""  # noqa: E501 - a pipe is not wrapped


def piped(report: AuditReport, *, verbose: bool = False, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    page = io.TextIOWrapper(raw, encoding=encoding)
    draw(report, canvas(Console(file=page, force_terminal=False), verbose=verbose))
    page.flush()
    return raw.getvalue().decode(encoding)


def on_terminal(report: AuditReport, width: int = 80, **console: object) -> str:
    page = io.StringIO()
    draw(report, canvas(Console(file=page, force_terminal=True, width=width, **console)))  # type: ignore[arg-type]
    return page.getvalue()


@pytest.mark.parametrize(("report", "screen"), [(CLEAN, CLEAN_SCREEN), (BROKEN, BROKEN_SCREEN)])
def test_whole_screens(report: AuditReport, screen: str) -> None:
    assert piped(report) == screen


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_terminals_lines_fit_its_width_and_keep_their_indentation(width: int) -> None:
    screen = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(BROKEN, width))
    assert max(len(line.rstrip()) for line in screen.splitlines()) <= width
    details = screen.split("alike:")[1].split("read")[0].splitlines()
    assert all(line.startswith(" " * 8) for line in details[1:] if line.strip())


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[31m" in on_terminal(BROKEN, color_system="standard")
    assert "\x1b[31m" not in on_terminal(BROKEN, no_color=True)
    assert "\x1b" not in piped(BROKEN)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in on_terminal(BROKEN)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b[31m" not in on_terminal(BROKEN)


def test_everything_is_shown_on_request() -> None:
    assert "Pod default/bad-6" not in piped(BROKEN)
    assert "Pod default/bad-6" in piped(BROKEN, verbose=True)


def test_signs_have_ascii_forms() -> None:
    screen = piped(BROKEN, encoding="ascii")
    assert "x every pod is good" in screen
    assert "!! TST002" in screen


@pytest.mark.parametrize("show", [piped, on_terminal])
def test_hostile_names_stay_text(show: object) -> None:
    screen = show(STRANGE)  # type: ignore[operator]
    assert HOSTILE not in screen
    assert "\u202e" not in screen
    assert "\\x1b[31m\\u202e\\n[bold]x[/]" in screen.replace("\n", "").replace(" ", "")


def test_the_last_line_never_says_clean_while_a_proof_is_missing() -> None:
    assert summary(UNPROVEN) == "Nothing wrong found; 1 thing not proven."
    assert "not proven: a pod can be made (" in piped(UNPROVEN)
    assert summary(EMPTY).startswith("Nothing to judge")


def test_the_last_line_says_what_is_waived_or_required_and_missing() -> None:
    waived = report(pod("bad-0"), node("default"), policy=Policy(waivers=(WAIVED,)))
    assert summary(waived) == "Nothing wrong found; 1 finding waived."
    outcome = msgspec.structs.replace(CLEAN.outcome, incomplete=True, exit_code=3)
    assert summary(msgspec.structs.replace(CLEAN, outcome=outcome)) == (
        "Nothing wrong found; the run is incomplete: a check, a proof or a share of the reads that it "
        "requires is missing."
    )


def cured_by(remedy: str, book: str | None = "mend") -> AuditReport:
    """The broken report, with a runbook for its findings."""
    builtins = msgspec.to_builtins(BROKEN)
    for check in builtins["checks"]:
        for assertion in check["assertions"]:
            for finding in assertion["findings"]:
                finding |= {"remedy": remedy, "runbook": book}
    return msgspec.convert(builtins, AuditReport)


def test_the_runbooks_that_cure_what_was_found_stand_at_the_end() -> None:
    last = piped(cured_by("mend it: `gpuctl plan mend lab/bad --soon`; risk: none")).splitlines()[-1]
    assert last == "  runbook: gpuctl plan mend lab/bad --soon"
    assert piped(cured_by("mend it")).splitlines()[-1] == "  runbook: gpuctl plan mend --help"
    assert "runbook:" not in piped(cured_by("mend it: `gpuctl plan mend x`", None))


def test_a_remedy_for_nodes_alike_is_told_of_the_node() -> None:
    builtins = msgspec.to_builtins(cured_by("mend it: `gpuctl plan mend NODE --soon`"))
    assert piped(msgspec.convert(builtins, AuditReport)).splitlines()[-1].endswith("mend NODE --soon")
    for check in builtins["checks"]:
        for assertion in check["assertions"]:
            for finding in assertion["findings"]:
                finding["object"] |= {"kind": "Node", "name": "gpu-1", "namespace": ""}
    last = piped(msgspec.convert(builtins, AuditReport)).splitlines()[-1]
    assert last == "  runbook: gpuctl plan mend gpu-1 --soon"
