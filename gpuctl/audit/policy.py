"""gpuctl.yaml: what a team has decided. Unknown keys are errors, named with their nearest neighbour."""

from __future__ import annotations

import difflib
import re
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from gpuctl.facts.fact import Argument

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


class ChecksPolicy(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """One section per check, under the check's name."""

    kueue_webhooks: KueueWebhooksPolicy = KueueWebhooksPolicy()
    mig_consistency: MigConsistencyPolicy = MigConsistencyPolicy()
    queue_growth: QueueGrowthPolicy = QueueGrowthPolicy()
    vllm_mode: VllmModePolicy = VllmModePolicy()


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
    try:
        return msgspec.convert({} if content is None else content, Policy)
    except msgspec.ValidationError as error:
        raise PolicyError(f"{origin}: {_explained(str(error))}") from error


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
