"""The manager's configuration, as far as the counting and admitting of Workloads depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.kueue.quantities import Amount, amount

DEFAULT_FRAMEWORKS = frozenset({"batch/job"})


@dataclass(frozen=True, slots=True)
class Transformation:
    """A resource that Kueue counts as others. `replaced`: it is no longer counted as itself."""

    resource: str
    outputs: tuple[tuple[str, Amount], ...]  # for one of the resource
    replaced: bool
    multiplied_by: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the manager was told; the defaults are those of Kueue."""

    transformations: tuple[Transformation, ...] = ()
    excluded: tuple[str, ...] = ()  # prefixes of resources that are not counted
    undeclared_pass: bool = False  # resources that no queue covers are not counted
    blocks_admission: bool = False  # until all admitted Workloads have their pods ready
    frameworks: frozenset[str] = DEFAULT_FRAMEWORKS
    device_classes: frozenset[str] = frozenset()  # of which claims are counted; without any, none are
    claimed: frozenset[str] = frozenset()  # the resources as which they are

    def inputs_of(self, resource: str) -> tuple[str, ...]:
        """What nodes call a resource that Kueue counts: itself, unless it is made of others."""
        made = tuple(
            each.resource
            for each in self.transformations
            if any(output == resource for output, _ in each.outputs)
        )
        return made or (resource,)

    def counts(self, resource: str) -> bool:
        """Whether requests of a resource are counted at all."""
        return not any(resource.startswith(prefix) for prefix in self.excluded)


def parse(text: str | None) -> Settings:
    """Reads the configuration file. Raises NotKnown if it is not one."""
    import yaml

    try:
        content = yaml.safe_load(text or "") or {}
        return _settings(content)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError) as error:
        message = " ".join(str(error).split())
        raise NotKnown(Unknown(Reason.MALFORMED, message, "the manager's configuration")) from error


def _settings(content: Mapping[str, Any]) -> Settings:
    resources = content.get("resources") or {}
    frameworks = (content.get("integrations") or {}).get("frameworks")
    mappings: Sequence[Mapping[str, Any]] = resources.get("deviceClassMappings") or ()
    return Settings(
        transformations=tuple(_transformations(resources.get("transformations") or ())),
        excluded=tuple(map(str, resources.get("excludeResourcePrefixes") or ())),
        undeclared_pass="IgnoreUndeclared"
        in (content.get("quotaCheckStrategy"), resources.get("quotaCheckStrategy")),
        blocks_admission=_blocks(content),
        frameworks=DEFAULT_FRAMEWORKS if frameworks is None else frozenset(map(str, frameworks)),
        device_classes=frozenset(str(name) for each in mappings for name in each.get("deviceClassNames", ())),
        claimed=frozenset(str(each.get("name")) for each in mappings),
    )


def _blocks(content: Mapping[str, Any]) -> bool:
    """v1beta1 waits only where it is enabled, and then blocks unless told not to; v1beta2 the other way
    round."""
    waiting = content.get("waitForPodsReady") or {}
    enabled, blocks = waiting.get("enable"), waiting.get("blockAdmission")
    if str(content.get("apiVersion", "")).endswith("/v1beta1"):
        return enabled is True and blocks is not False
    return enabled is not False and blocks is True


def _transformations(written: Iterable[Mapping[str, Any]]) -> Iterator[Transformation]:
    for each in written:
        outputs = (each.get("outputs") or {}).items()
        yield Transformation(
            str(each["input"]),
            tuple((str(resource), amount(quantity)) for resource, quantity in outputs),
            replaced=each.get("strategy") == "Replace",
            multiplied_by=str(each.get("multiplyBy") or ""),
        )
