"""vLLM's engines as a person sees them: a line for each, or one in full with its evidence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from gpuctl.audit.finding import Severity
from gpuctl.audit.outcome import counts
from gpuctl.audit.report import CheckItem, FindingItem
from gpuctl.report import words
from gpuctl.report.plain import plain
from gpuctl.report.table import print_table
from gpuctl.report.text import Canvas

BAR: Final = 20
LEGEND: Final = (
    "memory of the fullest GPU: W weights, A activations and the rest, K KV cache, G graphs, . free"
)
_GIB: Final = (
    ("weights", "weightsGib"),
    ("activation peak", "activationGib"),
    ("outside PyTorch", "nonTorchGib"),
    ("weights and outside", "consumedGib"),
    ("graphs", "graphsGib"),
    ("graphs, estimated", "graphsEstimateGib"),
    ("KV cache", "kvGib"),
    ("budget", "budgetGib"),
    ("GPU or slice", "totalGib"),
    ("free beside the budget", "freeOutsideGib"),
    ("taken at start", "takenByOthersGib"),
)


@dataclass(frozen=True, slots=True)
class View:
    """One engine: its pod, what was learned of it, and what was found about it."""

    namespace: str
    pod: str
    facts: Mapping[str, Any]
    findings: tuple[FindingItem, ...]
    alone: bool  # no other engine in its pod

    @property
    def name(self) -> str:
        """`serving/chat-0`, with the container where the pod runs several engines."""
        container = "" if self.alone else f"/{self.facts['container']}"
        return f"{self.namespace}/{self.pod}{container}"

    def is_named(self, name: str) -> bool:
        """Whether a person means this engine by `name` or `namespace/name`."""
        return name in (self.pod, f"{self.namespace}/{self.pod}", self.name)

    @property
    def mode(self) -> str:
        """`graphs (FULL_AND_PIECEWISE)`, `eager`, or why there is none."""
        mode = self.facts.get("mode")
        if mode is None:
            return "unknown"
        variant = f" ({mode['variant']})" if mode.get("variant") else ""
        return f"graphs{variant}" if mode["graphs"] else "eager"

    @property
    def verdict(self) -> str:
        """The gravest finding, or `ok`."""
        grave = [each for each in self.findings if counts(each) and each.severity != Severity.INFO]
        if not grave and self.facts["state"] != "serving":
            return str(self.facts["state"])
        if not grave:
            return "ok" if self.facts.get("mode") else "not proven"
        worst = min(grave, key=lambda each: list(Severity).index(Severity(each.severity)))
        more = f" +{len(grave) - 1}" if len(grave) > 1 else ""
        return f"{worst.severity} {worst.code}{more}"


def views(check: CheckItem) -> list[View]:
    """The engines that a run of the check learned of, in the order of their names."""
    found = [
        _view(item.object.namespace, item.object.name, facts, item.facts["engines"], check)
        for item in check.subjects
        for facts in item.facts["engines"]
    ]
    return sorted(found, key=lambda each: each.name)


def _view(namespace: str, pod: str, facts: Mapping[str, Any], all_: Sequence[Any], check: CheckItem) -> View:
    findings = tuple(
        finding
        for assertion in check.assertions
        for finding in assertion.findings
        if (finding.object.namespace, finding.object.name) == (namespace, pod)
        and (len(all_) == 1 or f", container {facts['container']} (" in finding.message)
    )
    return View(namespace, pod, facts, findings, len(all_) == 1)


def engines_json(found: Iterable[View]) -> str:
    """The same as data."""
    tree = [
        {"namespace": each.namespace, "pod": each.pod, "verdict": each.verdict, **each.facts}
        for each in found
    ]
    return json.dumps(tree, indent=2, default=str) + "\n"


def draw_engines(found: Sequence[View], check: CheckItem, on: Canvas) -> None:
    """A line for each engine."""
    headers = ("ENGINE", "MODE", "HOW", "VLLM", "GPU", "MEMORY", "CONC", "VERDICT")
    print_table(on.console, headers, [_row(each) for each in found])
    if any(_ranks(each) for each in found):
        on.line(Text(LEGEND, style="dim"))
    _draw_gaps(check, on)
    for line in _tally(found):
        on.line(line)


def _row(view: View) -> tuple[str, ...]:
    facts = view.facts
    mode = facts.get("mode") or {}
    concurrency = facts.get("concurrency")
    return (
        view.name,
        view.mode,
        mode.get("confidence", "-"),
        facts.get("version", "?"),
        _gpu(facts.get("gpu") or {}),
        bar(_fullest(view)) or "-",
        f"{concurrency:.2f}x" if concurrency is not None else "-",
        view.verdict,
    )


def _gpu(gpu: Mapping[str, Any]) -> str:
    names = [
        f"{name.rpartition('/')[2]}{f' x{number}' if number > 1 else ''}"
        for name, number in gpu.get("resources", {}).items()
    ]
    size = f" {gpu['gib']:.0f} GiB" if "gib" in gpu else ""
    return f"{', '.join(names)}{size}" if names else "none"


def _ranks(view: View) -> Sequence[Mapping[str, Any]]:
    return view.facts.get("ranks") or ()


def _fullest(view: View) -> Mapping[str, Any]:
    """The rank with the least room for its KV cache."""
    return min(_ranks(view), key=lambda each: each.get("kvGib", 0.0), default={})


def bar(rank: Mapping[str, Any], width: int = BAR) -> str:
    """A rank's memory as letters, each a twentieth of the GPU; empty where its size is not known."""
    total = rank.get("totalGib") or rank.get("budgetGib")
    if not total or total <= 0:
        return ""
    consumed = rank.get("consumedGib")
    weights = rank.get("weightsGib") or 0.0
    rest = (rank.get("activationGib") or 0.0) + (
        max(consumed - weights, 0.0) if consumed else max(rank.get("nonTorchGib") or 0.0, 0.0)
    )
    parts = (
        ("W", weights),
        ("A", rest),
        ("K", rank.get("kvGib") or 0.0),
        ("G", rank.get("graphsGib") or 0.0),
    )
    letters = "".join(letter * _cells(gib, total, width) for letter, gib in parts)[:width]
    return f"[{letters.ljust(width, '.')}]"


def _cells(gib: float, total: float, width: int) -> int:
    return max(round(gib / total * width), 1 if gib >= 0.05 else 0) if gib > 0 else 0  # noqa: PLR2004 - what shows


def _tally(found: Sequence[View]) -> Iterator[Text]:
    modes = [each.facts.get("mode") for each in found]
    graphs = sum(1 for mode in modes if mode and mode["graphs"])
    eager = sum(1 for mode in modes if mode and not mode["graphs"])
    parts = [f"{len(found)} engines: {graphs} with graphs, {eager} eager"]
    if len(found) > graphs + eager:
        parts.append(f"{len(found) - graphs - eager} not told")
    yield Text(", ".join(parts), style="bold")


def _draw_gaps(check: CheckItem, on: Canvas) -> None:
    for missing in check.coverage.missing[: words.SHOWN]:
        said = f": {missing.message}" if missing.message else ""
        where = f" {missing.namespace}/{missing.name}" if missing.name else ""
        on.line(on.sign("unknown").append(plain(f"{missing.resource}{where}: {missing.reason}{said}")))


def draw_engine(view: View, on: Canvas) -> None:
    """One engine in full."""
    on.line(Text(plain(f"{view.name}  {view.facts['workload']}"), style="bold"))
    for label, text in _identity(view):
        on.line(f"{label:<16}{plain(text)}", indent=2)
    _draw_mode(view, on)
    _draw_memory(view, on)
    _draw_past_hour(view, on)
    _draw_evidence(view, on)
    _draw_findings(view, on)
    on.line("")


def _identity(view: View) -> Iterator[tuple[str, str]]:
    facts = view.facts
    engine = f" ({facts['engine']} engine)" if facts.get("engine") else ""
    yield "state", f"{facts['state']}{_load(facts)}"
    yield (
        "vLLM",
        (
            f"{facts.get('version', 'version unknown')}{engine}, {facts['stack']}, known by "
            f"{facts['recognisedBy']}"
        ),
    )
    yield "image", facts["image"]
    if facts.get("model"):
        yield "model", f"{facts['model']}{_length(facts)}"
    yield "GPU", f"{_gpu(facts.get('gpu') or {})}{_place(facts)}"
    if facts.get("parallel"):
        yield "parallel", ", ".join(f"{name} {size}" for name, size in facts["parallel"].items())


def _length(facts: Mapping[str, Any]) -> str:
    return f", {facts['maxModelLen']} tokens at most" if facts.get("maxModelLen") else ""


def _place(facts: Mapping[str, Any]) -> str:
    product = (facts.get("gpu") or {}).get("product", "")
    where = f" on node {facts['node']}" if facts.get("node") else ""
    return f"{where}{f' ({product})' if product else ''}"


def _load(facts: Mapping[str, Any]) -> str:
    load = facts.get("load")
    lost = facts.get("loadUnknown")
    unknown = (
        f"; the end of its log, which tells how busy it is now, is missing ({plain(lost)})" if lost else ""
    )
    if not load:
        return unknown
    when = f"at {load['at']}" if load.get("at") else f"now, by {load.get('source', 'itself')}"
    words = {
        "running": "{} running",
        "waiting": "{} waiting",
        "kvUsagePercent": "KV cache {} % in use",
        "preemptions": "{} preemptions",
    }
    told = [form.format(load[name]) for name, form in words.items() if load.get(name) is not None]
    return f"; {when}: {', '.join(told)}{unknown}"


def _draw_mode(view: View, on: Canvas) -> None:
    mode, facts = view.facts.get("mode"), view.facts
    if mode:
        on.line(f"{'mode':<16}{plain(view.mode)}, {mode['confidence']}: {plain(mode['why'])}", indent=2)
    else:
        on.line(f"{'mode':<16}{plain(view.mode)}: {plain(str(facts.get('modeUnknown', '')))}", indent=2)
    if "specified" in facts:
        on.line(f"{'by its process':<16}{plain(str(facts.get('planned', '')))}", indent=2)
    spec = facts.get("specified", facts.get("planned", ""))
    on.line(f"{'by its spec':<16}{plain(str(spec))}", indent=2)
    if facts.get("required") != "report":
        on.line(f"{'required':<16}{plain(facts['required'])}", indent=2)


def _draw_memory(view: View, on: Canvas) -> None:
    ranks = _ranks(view)
    if not ranks:
        on.line(
            f"{'memory':<16}{plain(str(view.facts.get('logUnknown', 'its log does not tell')))}", indent=2
        )
        return
    utilization = view.facts.get("utilization")
    said = f"utilisation {utilization}" if utilization is not None else "utilisation unknown"
    tokens = view.facts.get("kvTokens")
    kv = f", KV cache of {tokens:,} tokens" if tokens else ""
    concurrency = view.facts.get("concurrency")
    fits = f", {concurrency:.2f} requests of full length at a time" if concurrency is not None else ""
    on.line(f"{'memory':<16}{said}{kv}{fits}", indent=2)
    names = [rank.get("name") or "GPU" for rank in ranks]
    rows = [
        (label, *(f"{rank[key]:.2f}" if isinstance(rank.get(key), float | int) else "-" for rank in ranks))
        for label, key in _GIB
        if any(key in rank for rank in ranks)
    ]
    print_table(on.console, ("GiB", *names), rows)
    for rank in ranks:
        on.line(f"{plain(rank.get('name') or 'GPU'):<16}{bar(rank, 2 * BAR)}", indent=2)
    on.line(Text(LEGEND, style="dim"), indent=2)


def _draw_past_hour(view: View, on: Canvas) -> None:
    if view.facts.get("pastHourUnknown"):
        on.line(f"{'past hour':<16}not known: {plain(view.facts['pastHourUnknown'])}", indent=2)
    for each in view.facts.get("pastHour") or ():
        device = " ".join(f"{name} {value}" for name, value in (each.get("device") or {}).items())
        counted = f", {each['counted']:g} counted" if "counted" in each else ""
        said = (
            f"{each['metric']} {device}: mean {each.get('mean', 0):g}, peak {each.get('peak', 0):g}{counted}"
        )
        on.line(f"{'past hour':<16}{plain(said)}", indent=2)


def _draw_evidence(view: View, on: Canvas) -> None:
    evidence = view.facts.get("evidence") or ()
    if evidence:
        on.line(Text("what its log says", style="bold"), indent=2)
    for each in evidence:
        at = f"{each['at']:%H:%M:%S}  " if each.get("at") else ""
        on.line(Text(f"{at}{plain(each['text'])}", style="dim"), indent=4)


def _draw_findings(view: View, on: Canvas) -> None:
    for finding in view.findings:
        sign = on.sign("none" if finding.waiver else finding.severity)
        on.line(sign.append(finding.code, style="bold").append(f" {plain(finding.message)}"), indent=2)
        on.line(Text(f"look  {plain(finding.look)}", style="dim"), indent=6)
        on.line(Text(f"do    {plain(finding.remedy)}", style="dim"), indent=6)
