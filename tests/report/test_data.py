"""json and yaml: the same content, in the schema, with nothing raw in it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from gpuctl.audit.report import AuditReport
from gpuctl.report.data import to_json, to_yaml
from tests.report.reports import BROKEN, CLEAN, EMPTY, HOSTILE, STRANGE, UNPROVEN

STORED = json.loads(Path("docs/schema/report.v1.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("report", [CLEAN, BROKEN, UNPROVEN, STRANGE, EMPTY])
def test_both_say_the_same_in_the_schema(report: AuditReport) -> None:
    content = json.loads(to_json(report))
    jsonschema.validate(content, STORED)
    assert json.loads(json.dumps(yaml.safe_load(to_yaml(report)), default=str)) is not None
    assert yaml.safe_load(to_yaml(report))["outcome"] == content["outcome"]


def test_the_names_are_those_of_the_contract() -> None:
    content = json.loads(to_json(BROKEN))
    assert (content["apiVersion"], content["kind"]) == ("gpuctl.dev/v1", "AuditReport")
    assert set(content["run"]) == {"id", "startedAt", "finishedAt", "version", "source"}
    assert set(content["run"]["source"]) >= {"kind", "name", "clusterUID", "serverVersion", "capturedAt"}
    assert set(content["outcome"]) == {"exitCode", "failed", "incomplete", "counts"}
    (check,) = content["checks"]
    assert set(check) == {"id", "title", "verdict", "assertions", "coverage", "subjects"}
    assert set(check["coverage"]) == {"expected", "read", "missing"}
    assertion = check["assertions"][0]
    assert set(assertion) == {"id", "statement", "kind", "verdict", "reason", "looked", "findings", "unknown"}
    finding = assertion["findings"][0]
    assert set(finding) >= {
        "code", "severity", "object", "message", "evidence", "look", "remedy", "runbook", "fingerprint",
    }  # fmt: skip
    assert set(finding["object"]) == {"apiVersion", "kind", "namespace", "name"}
    assert set(finding["evidence"][0]) == {"source", "observed", "at"}


def test_hostile_names_survive_as_data_and_never_raw() -> None:
    for text, loaded in ((to_json(STRANGE), json.loads), (to_yaml(STRANGE), yaml.safe_load)):
        assert text.isascii()
        assert "\x1b" not in text
        assert loaded(text)["checks"][0]["assertions"][0]["findings"][0]["object"]["name"] == HOSTILE
