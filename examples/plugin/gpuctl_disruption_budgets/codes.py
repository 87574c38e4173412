"""The codes of the findings. Stable: never reused, each with a section in README.md."""

from __future__ import annotations

from typing import Final

from gpuctl.audit.finding import Code, Severity

NEVER: Final = Code("PDB001", "a budget permits no eviction, ever", Severity.WARNING)
NOT_NOW: Final = Code("PDB002", "a budget permits no eviction now, as pods are ill", Severity.WARNING)

ALL: Final = (NEVER, NOT_NOW)
