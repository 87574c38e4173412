"""Looking at the cluster anew, as a run does before each thing it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts

Look = Callable[[Iterable[Fact[Any]]], Facts]
"""Reads these facts as they are now, within a bounded time. Never raises for what the cluster did."""
