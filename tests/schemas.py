"""Writes docs/schema/ from the code: `make schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from gpuctl.audit.policy import Policy
from gpuctl.audit.report import AuditReport
from gpuctl.runbook.plan import Plan
from gpuctl.runbook.records import Run

FOLDER = Path(__file__).parent.parent / "docs" / "schema"
SCHEMAS: dict[str, type[Any]] = {
    "report.v1.json": AuditReport,
    "policy.v1.json": Policy,
    "plan.v1.json": Plan,
    "run.v1.json": Run,
}


def schema(name: str) -> str:
    return json.dumps(msgspec.json.schema(SCHEMAS[name]), indent=2) + "\n"


if __name__ == "__main__":
    for name in SCHEMAS:
        (FOLDER / name).write_text(schema(name), encoding="utf-8")
