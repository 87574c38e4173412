"""The machine-readable formats: json and yaml, in the schema of docs/schema/report.v1.json."""

from __future__ import annotations

import json

import msgspec

from gpuctl.audit.report import AuditReport


def to_json(report: AuditReport) -> str:
    """The report as JSON. ASCII only, so that no character of a cluster's strings reaches a terminal raw."""
    return json.dumps(msgspec.to_builtins(report), indent=2) + "\n"


def to_yaml(report: AuditReport) -> str:
    """The same as YAML, in the same order of fields."""
    import yaml

    text: str = yaml.safe_dump(msgspec.to_builtins(report), sort_keys=False, width=120)
    return text
