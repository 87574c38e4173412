"""gpuctl.yaml: what a team has decided. Unknown keys are errors, named with their nearest neighbour."""

from __future__ import annotations

import difflib
import math
import re
import zoneinfo
from collections.abc import Iterator
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from gpuctl.facts.fact import Argument
from gpuctl.facts.home import HOME

FILE = "gpuctl.yaml"


class PolicyError(Exception):
    """A policy that can't be used: which file, which key, what is wrong with it."""


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pass


class KueueWebhooksPolicy(_Part, frozen=True):
    """What `kueue-webhooks` tolerates.

    `ca_expiry_warning_days`: a CA that ends within so many days is a warning.
    `rotation_seconds`: bundles that disagree are taken for a rotation under way for so long.
    """

    ca_expiry_warning_days: int = 14
    rotation_seconds: int = 90


class VllmRequirement(_Part, frozen=True, kw_only=True):
    """The mode some engines must run in. Every field given must match: globs, `workload` as `Kind name`."""

    mode: Literal["report", "require-graphs", "require-eager"]
    namespace: str = "*"
    workload: str = "*"
    labels: dict[str, str] = {}


class VllmModePolicy(_Part, frozen=True):
    """What `vllm-mode` asks for.

    `mode` holds for every engine; the first of `requirements` that matches goes before it, and the pod's
    annotation gpuctl.dev/vllm-mode before both.
    `concurrency`: fewer requests of full length at a time are a warning.
    `kv_share`: a smaller share of the budget for the KV cache is a warning.
    `graph_reserve_gib`: must be free beside graphs that lie outside of the budget.
    `shared_utilization`: engines that share a GPU may use this much of it together.
    """

    mode: Literal["report", "require-graphs", "require-eager"] = "report"
    requirements: tuple[VllmRequirement, ...] = ()
    concurrency: float = 1.0
    kv_share: float = 0.0
    graph_reserve_gib: float = 0.5
    shared_utilization: float = 0.95


class MigConsistencyPolicy(_Part, frozen=True):
    """What `mig-consistency` tolerates.

    `stuck_minutes`: a change of MIG or of the driver that takes longer is stuck. MIG manager waits up to 25.
    """

    stuck_minutes: int = 30


class QueueTolerance(_Part, frozen=True):
    """What is tolerated of one ClusterQueue; what is not given is as for all."""

    oldest_wait_warning_minutes: float | None = None
    oldest_wait_error_minutes: float | None = None
    held_hours: float | None = None
    requeues: int | None = None


class QueueGrowthPolicy(_Part, frozen=True):
    """What `queue-growth` tolerates.

    `oldest_wait_warning_minutes`, `oldest_wait_error_minutes`: whoever waits longer makes a finding.
    `held_hours`: GPU quota held longer by a Job without deadline, while others wait, is a warning.
    `requeues`: so many returns to the queue are a warning.
    `settle_seconds`: what changed less long ago is not judged yet.
    `without_pods_minutes`: quota held longer without any pod is a warning.
    `queues`: other limits for some ClusterQueues, by their name or a glob; the first that matches.
    """

    oldest_wait_warning_minutes: float = 60
    oldest_wait_error_minutes: float = 480
    held_hours: float = 24
    requeues: int = 5
    settle_seconds: float = 60
    without_pods_minutes: float = 10
    queues: dict[str, QueueTolerance] = {}

    def of(self, queue: str) -> QueueGrowthPolicy:
        """The limits of one ClusterQueue."""
        for pattern, tolerance in self.queues.items():
            if fnmatchcase(queue, pattern):
                given = {
                    name: each for name, each in msgspec.structs.asdict(tolerance).items() if each is not None
                }
                return msgspec.structs.replace(self, **given)
        return self


class FlavorImpactPolicy(_Part, frozen=True):
    """What `flavor-impact` asks for.

    `drill_days`: a drill of a flavor's loss longer ago proves nothing any more.
    `settle_seconds`: what changed less long ago is not judged yet.
    """

    drill_days: float = 90
    settle_seconds: float = 60


class ChecksPolicy(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """One section per check, under the check's name."""

    flavor_impact: FlavorImpactPolicy = FlavorImpactPolicy()
    kueue_webhooks: KueueWebhooksPolicy = KueueWebhooksPolicy()
    mig_consistency: MigConsistencyPolicy = MigConsistencyPolicy()
    queue_growth: QueueGrowthPolicy = QueueGrowthPolicy()
    vllm_mode: VllmModePolicy = VllmModePolicy()


Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d|24:00")


class MaintenanceWindow(_Part, frozen=True, kw_only=True):
    """When runbooks may change things: from one time of day to another on these days, in a time zone. One
    that ends before it begins goes on into the next day."""

    days: tuple[Day, ...] = get_args(Day)
    opens: str = msgspec.field(name="from")
    closes: str = msgspec.field(name="to")
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        for time in (self.opens, self.closes):
            if not _TIME.fullmatch(time):
                raise ValueError(f"a time of day is HH:MM, not {time!r}")
        if not self.days:
            raise ValueError("a window needs at least one day")
        try:
            zoneinfo.ZoneInfo(self.time_zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"there is no time zone {self.time_zone!r}") from error


class Breaker(_Part, frozen=True):
    """So many runs that failed within so many hours stop all further ones."""

    failures: int = 2
    hours: float = 24


class DrainPolicy(_Part, frozen=True):
    """How pods are drained. `modes` by namespace, names or globs, the first that matches: evict, wait for
    the pod to end by itself, or `evict-after` so many minutes of waiting.

    `protected`: namespaces (or globs) nothing is evicted from.
    """

    modes: dict[str, Literal["evict", "wait", "evict-after"]] = {}
    evict_after_minutes: float = 60
    protected: tuple[str, ...] = ("kube-system", "gpu-operator", "kueue-system", HOME)


class RunbooksPolicy(_Part, frozen=True):
    """What guarded changes must keep to.

    `windows`: when they may happen. `max_nodes`: at once in the cluster. `max_pool_share`: of a pool's GPUs
    that may be out of service, the target included; a pool is the nodes with the same `pool_label`.
    `blocking_pods`: selectors of pods that must not be on the node. `ignored_alerts`: globs of alert names
    that do not block. `expected_alerts`: names of alerts that always fire where monitoring hears anything,
    such as Watchdog; a missing one blocks. `lease_seconds`: after so long without a sign of life a process
    counts as dead. `keep_runs`: journals that are kept of the finished runs of each runbook. `valid_minutes`:
    for how long a plan may be applied.
    """

    windows: tuple[MaintenanceWindow, ...] = ()
    max_nodes: int = 1
    max_pool_share: float = 0.5
    pool_label: str = "nvidia.com/gpu.product"
    blocking_pods: tuple[str, ...] = ()
    ignored_alerts: tuple[str, ...] = ("Watchdog", "InfoInhibitor")
    expected_alerts: tuple[str, ...] = ()
    breaker: Breaker = Breaker()
    drain: DrainPolicy = DrainPolicy()
    lease_seconds: float = 30
    keep_runs: int = 50
    valid_minutes: float = 60

    def __post_init__(self) -> None:
        if self.max_nodes < 1 or not 0 < self.max_pool_share <= 1 or self.lease_seconds <= 0:
            raise ValueError(
                "maxNodes is 1 or more, maxPoolShare above 0 and at most 1, leaseSeconds above 0"
            )


class Waiver(_Part, frozen=True, kw_only=True):
    """A finding that does not count until a date. `object` is a glob over `Kind [namespace/]name`."""

    code: str
    object: str = "*"
    reason: str
    owner: str
    expires: date


class Acceptance(_Part, frozen=True, kw_only=True):
    """What may stay unknown until a date, without making the run incomplete.

    `assertion` is a glob over `check/assertion`, `object` one over what could not be judged; `cause` is a
    reason such as forbidden, any if empty.
    """

    assertion: str
    object: str = "*"
    cause: str = ""
    reason: str
    owner: str
    expires: date


class Policy(_Part, frozen=True):
    """The whole of gpuctl.yaml. `severity` overrides the severity of codes."""

    api_version: Literal["gpuctl.dev/v1"] = "gpuctl.dev/v1"
    kind: Literal["Policy"] = "Policy"
    fail_on: Literal["error", "warning", "never"] = "error"
    severity: dict[str, Literal["error", "warning", "info"]] = {}
    waivers: tuple[Waiver, ...] = ()
    accept_unknown: tuple[Acceptance, ...] = ()
    checks: ChecksPolicy = ChecksPolicy()
    runbooks: RunbooksPolicy = RunbooksPolicy()


BUILT_IN = {
    "default": Policy(),
    "strict": Policy(
        fail_on="warning",
        checks=ChecksPolicy(
            kueue_webhooks=KueueWebhooksPolicy(ca_expiry_warning_days=21),
            vllm_mode=VllmModePolicy(mode="require-eager"),
        ),
    ),
}
POLICY: Argument[Policy] = Argument("policy", BUILT_IN["default"])


def load(name: str | None, folder: Path) -> Policy:
    """The policy of this name or file; without a name that of ./gpuctl.yaml, or else `default`.

    Raises PolicyError.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name is None:
        return parse_file(folder / FILE) if (folder / FILE).exists() else BUILT_IN["default"]
    if not Path(name).exists():
        raise PolicyError(f"policy {name!r} is neither a file nor one of {', '.join(BUILT_IN)}")
    return parse_file(Path(name))


def parse_file(path: Path) -> Policy:
    """Reads a policy file. Raises PolicyError."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PolicyError(f"{path}: {_one_line(str(error))}") from error
    return parse(content, str(path))


def parse(content: Any, origin: str) -> Policy:
    """Turns the content of a policy file into a policy. Raises PolicyError."""
    for key in _not_finite(content):
        raise PolicyError(f"{origin}: {key} is not a finite number")
    try:
        return msgspec.convert({} if content is None else content, Policy)
    except msgspec.ValidationError as error:
        raise PolicyError(f"{origin}: {_explained(str(error))}") from error


def _not_finite(content: Any, key: str = "") -> Iterator[str]:
    """The keys of numbers that can be no limit: every comparison with .nan is false, so nothing is found."""
    if isinstance(content, float) and not math.isfinite(content):
        yield key
    elif isinstance(content, dict):
        for name, part in content.items():
            yield from _not_finite(part, f"{key}.{name}" if key else str(name))
    elif isinstance(content, list):
        for index, part in enumerate(content):
            yield from _not_finite(part, f"{key}[{index}]")


def _explained(message: str) -> str:
    unknown = re.search(r"unknown field `([^`]*)`(?: - at `\$\.?([^`]*)`)?", message)
    if not unknown:
        return message
    key, path = unknown.group(1), unknown.group(2) or ""
    near = difflib.get_close_matches(key, _keys(path), n=1, cutoff=0.5)
    where = f" in {path}" if path else ""
    hint = f", did you mean {near[0]!r}?" if near else f"; known are {', '.join(_keys(path))}"
    return f"unknown key {key!r}{where}{hint}"


def _keys(path: str) -> list[str]:
    part: Any = Policy
    for name in filter(None, re.sub(r"\[[^\]]*\]", "", path).split(".")):
        part = next(field.type for field in msgspec.structs.fields(part) if field.encode_name == name)
        part = _member(part)
    return [field.encode_name for field in msgspec.structs.fields(part)]


def _member(part: Any) -> Any:
    """What a list or a mapping holds; anything else as it is."""
    inside = get_args(part)
    if get_origin(part) is dict:
        return inside[1]
    return inside[0] if get_origin(part) is tuple else part


def _one_line(text: str) -> str:
    return " ".join(text.split())
