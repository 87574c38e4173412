"""A check: a folder of assertions, with the codes of its findings and the text that explains them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from gpuctl.audit.assertion import Assertion
from gpuctl.audit.finding import Code
from gpuctl.facts.fact import Fact
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each


@dataclass(frozen=True, eq=False)
class Check:
    """`package` is the check's folder, whose README.md is the text of `gpuctl explain`.

    `learned` tells what is known of each subject, whatever the verdict; it appears under `subjects` in the
    JSON report. `needed_for` is about reads that more assertions look at than depend on: it names those that
    can't be judged without the read where nothing is wrong; the others only say more with it.
    """

    id: str
    title: str
    package: str
    codes: tuple[Code, ...]
    assertions: tuple[Assertion, ...]
    learned: Fact[Each[Ref, Mapping[str, Any]]] | None = None
    needed_for: Mapping[Fact[Any], Collection[Assertion]] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        """Every fact the check's assertions rest on."""
        learned = (self.learned,) if self.learned else ()
        return tuple(dict.fromkeys((*(need for each in self.assertions for need in each.needs), *learned)))

    def readme(self) -> str:
        """The text that explains the check and its codes, in Markdown."""
        return resources.files(self.package).joinpath("README.md").read_text(encoding="utf-8")
