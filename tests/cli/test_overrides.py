"""Whatever a plan can be told to risk, the way back and the way on can be told, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuctl.cli.books import command_of, run_command, with_overrides
from gpuctl.runbook.catalogue import BOOKS, runbook
from gpuctl.runbook.mig.reconfigure import RUNBOOK as RECONFIGURE


def given(book: str, *arguments: str) -> Mapping[str, Any]:
    """What is made of these arguments after the id of a run of this runbook."""
    got: list[Mapping[str, Any]] = []
    with pytest.raises(SystemExit) as leaving:
        run_command("undo", "r1", arguments, with_overrides(runbook(book), got.append))
    assert leaving.value.code == 0
    return got[0]


@pytest.mark.parametrize("name", BOOKS)
def test_every_override_of_a_plan_is_one_of_undo_and_resume(name: str) -> None:
    book = runbook(name)
    overrides = {each.override for each in book.guards} - {""}
    wanted, arguments = {}, []
    for option in book.flags:
        if option.flag in overrides:
            number = not isinstance(option.default, bool)
            wanted[option.name] = 7 if number else True
            arguments += [option.flag, "7"] if number else [option.flag]
    assert len(wanted) == len(overrides)
    assert given(name, *arguments) == wanted
    assert given(name) == {}


def test_the_last_node_can_be_given_back() -> None:
    assert given("mig-reconfigure", "--last-node", "--max-evictions", "70") == {
        "last_node": True,
        "max_evictions": 70,
    }
    options = {"config": "all-disabled", "last_node": True, "max_evictions": 70, "force": False}
    assert command_of(RECONFIGURE, "gpu-1", options) == (
        "gpuctl plan mig-reconfigure gpu-1 --config all-disabled --last-node --max-evictions 70"
    )


def test_a_command_is_quoted_so_that_it_can_be_pasted() -> None:
    line = command_of(RECONFIGURE, "gpu-1", {"config": "a b; rm -rf"})
    assert line == "gpuctl plan mig-reconfigure gpu-1 --config 'a b; rm -rf'"
    drill = runbook("flavor-drill")
    assert command_of(drill, drill.default_target, {}) == "gpuctl plan flavor-drill"
