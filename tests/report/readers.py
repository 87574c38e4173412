"""Readers of the outputs: what a consumer of each format gets to know of a run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from junitparser import JUnitXml
from junitparser import TestCase as Case
from junitparser import TestSuite as Suite
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from gpuctl.audit.report import AuditReport

VERDICTS = ("fail", "unknown", "not-proven", "not-applicable", "pass")
_SCHEMA = json.loads((Path(__file__).parent / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
SARIF = jsonschema.Draft4Validator(_SCHEMA, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)
COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)")
_TALLY = re.compile(r"(\d+) (fail|unknown|not-proven|not-applicable|pass)\b")


@dataclass(frozen=True)
class Seen:
    """The verdicts that came out how often, and the exit code."""

    verdicts: dict[str, int]
    exit_code: int


def expected(report: AuditReport) -> Seen:
    verdicts = Counter(assertion.verdict for check in report.checks for assertion in check.assertions)
    return Seen({name: verdicts[name] for name in VERDICTS}, int(report.outcome.exit_code))


def suite(text: str) -> Suite:
    """The one suite of a JUnit file."""
    (found,) = JUnitXml.fromstring(text.encode())
    assert isinstance(found, Suite)
    return found


def _junit(text: str) -> Seen:
    verdicts: Counter[str] = Counter()
    properties = {item.name: item.value for item in suite(text).properties()}
    for case in suite(text):
        assert len(case.result) <= 1
        if case.classname == "gpuctl":  # an error for the run as a whole: no assertion stands for it
            assert case.is_error
            continue
        verdicts[_verdict(case)] += 1
    assert {name: int(properties[f"outcome.verdict.{name}"]) for name in VERDICTS} == _all(verdicts)
    return Seen(_all(verdicts), int(properties["outcome.exitCode"]))


def _verdict(case: Case) -> str:
    if case.is_passed:
        return "pass"
    return "fail" if case.is_failure else str(case.result[0].type)


def sarif_run(text: str) -> Any:
    """The one run of a SARIF log, once the log is known to be valid."""
    log = json.loads(text)
    SARIF.validate(log)
    (run,) = log["runs"]
    return run


def _sarif(text: str) -> Seen:
    run = sarif_run(text)
    outcome, (invocation,) = run["properties"]["outcome"], run["invocations"]
    assert invocation["executionSuccessful"] is not outcome["incomplete"]
    return Seen(outcome["counts"]["verdict"], invocation["exitCode"])


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a Markdown page as a reader sees them: rows of cells of text."""
    found: list[list[list[str]]] = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and token.level == 4:
            assert {child.type for child in token.children or ()} <= {"text", "text_special"}, token
            found[-1][-1].append("".join(child.content for child in token.children or ()))
    return found


def _markdown(text: str) -> Seen:
    checks = [dict(zip(tables(text)[0][0], row, strict=True)) for row in tables(text)[0][1:]]
    counts = {name: sum(int(check[name]) for check in checks) for name in VERDICTS}
    assert counts == _counts(text)
    return Seen(counts, _code(text))


def commands(text: str) -> list[tuple[str, str, str]]:
    """The workflow commands: level, title, message. Each line is one."""
    return [_command(line) for line in text.removesuffix("\n").split("\n")]


def _command(line: str) -> tuple[str, str, str]:
    match = COMMAND.fullmatch(line)
    assert match, f"no workflow command: {line!r}"
    return match[1], _unescaped(match[2]), _unescaped(match[3])


def _unescaped(text: str) -> str:
    assert not re.search(r"%(?!25|0A|0D|3A|2C)", text)
    for code, character in (("0A", "\n"), ("0D", "\r"), ("3A", ":"), ("2C", ","), ("25", "%")):
        text = text.replace(f"%{code}", character)
    return text


def _github(text: str) -> Seen:
    _level, title, message = commands(text)[-1]
    assert title == "gpuctl check"
    return Seen(_counts(message), _code(message))


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of each metric. Each metric has its HELP and TYPE, and no set of labels comes twice."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        assert {sample.name for sample in family.samples} <= {family.name}
        found[family.name] = [(dict(sample.labels), sample.value) for sample in family.samples]
        assert len({tuple(labels.items()) for labels, _ in found[family.name]}) == len(found[family.name])
    return found


def _prometheus(text: str) -> Seen:
    metrics = samples(text)
    verdicts = Counter(labels["verdict"] for labels, _value in metrics["gpuctl_assertion"])
    return Seen(_all(verdicts), int(metrics["gpuctl_exit_code"][0][1]))


def _data(load: Callable[[str], Any]) -> Callable[[str], Seen]:
    def read(text: str) -> Seen:
        report = load(text)
        verdicts = Counter(item["verdict"] for check in report["checks"] for item in check["assertions"])
        assert _all(verdicts) == report["outcome"]["counts"]["verdict"]
        return Seen(_all(verdicts), report["outcome"]["exitCode"])

    return read


def _all(verdicts: Counter[str]) -> dict[str, int]:
    assert set(verdicts) <= set(VERDICTS)
    return {name: verdicts[name] for name in VERDICTS}


def _counts(text: str) -> dict[str, int]:
    return {name: int(number) for number, name in _TALLY.findall(text)}


def _code(text: str) -> int:
    (found,) = re.findall(r"exit code (\d+)", text)
    return int(found)


READERS: dict[str, Callable[[str], Seen]] = {
    "json": _data(json.loads),
    "yaml": _data(yaml.safe_load),
    "junit": _junit,
    "sarif": _sarif,
    "markdown": _markdown,
    "github": _github,
    "prometheus": _prometheus,
}
