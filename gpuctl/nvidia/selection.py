"""Which mig-parted configuration is in force on a node, and where it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, NotKnown, Reason, Unknown
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.objects import GpuContainer, GpuPod, MigConfigMap
from gpuctl.nvidia.operands import MANAGER
from gpuctl.nvidia.parted import Configs, Part, parse_configs

KEY: Final = "config.yaml"
DEFAULT: Final = "default-mig-parted-config"

ConfigMaps = Each[Ref, MigConfigMap]


@dataclass(frozen=True, slots=True)
class Selection:
    """The ConfigMap in force, the names in it, and what the node's name for it asks (None: no such name)."""

    source: Ref
    names: tuple[str, ...]
    parts: tuple[Part, ...] | None


def selected(node: Node, maps: ConfigMaps) -> Selection | None:
    """What the node's label selects; None if no ConfigMap of MIG manager's was found.

    Raises `NotKnown` where a ConfigMap that decides it could not be read.
    """
    found = list(_in_force(node, maps))
    for source, configs in found:
        if node.config in configs:
            return Selection(source, tuple(configs), configs[node.config])
    return Selection(found[0][0], tuple(found[0][1]), None) if found else None


def _in_force(node: Node, maps: ConfigMaps) -> Iterator[tuple[Ref, Configs]]:
    """A ConfigMap of somebody's own decides alone; those that the operator makes stand in for each other."""
    for source, configs in _found(node, maps):
        yield source, configs
        if source.name not in (DEFAULT, _generated(node)):
            return


def _generated(node: Node) -> str:
    return f"{node.name}-mig-config"


def _found(node: Node, maps: ConfigMaps) -> Iterator[tuple[Ref, Configs]]:
    """The ConfigMaps that exist and may be in force, the one that decides first."""
    for ref in dict.fromkeys(_candidates(node, maps)):
        found = maps.get(ref)
        if found is not None and KEY in found.data:
            yield ref, _configs(found)


def _configs(found: MigConfigMap) -> Configs:
    try:
        return parse_configs(found.data[KEY])
    except ValueError as error:
        raise NotKnown(Unknown(Reason.MALFORMED, str(error), str(found.ref))) from error


def _candidates(node: Node, maps: ConfigMaps) -> Iterator[Ref]:
    managers = node.operands.get(MANAGER, ())
    namespaces = dict.fromkeys((*(pod.metadata.namespace for pod in managers), *_namespaces(maps)))
    for pod in managers:
        for name in _mounted(pod):
            yield Ref(MigConfigMap.of, name, pod.metadata.namespace)
    for namespace in namespaces:
        for name in (*_of_policy(node), _generated(node), DEFAULT):
            yield Ref(MigConfigMap.of, name, namespace)


def _namespaces(maps: ConfigMaps) -> list[str]:
    return sorted({ref.namespace for ref in maps.entries})


def _of_policy(node: Node) -> Iterator[str]:
    policy = node.around.policy
    spec = policy.value if isinstance(policy, Known) else None
    if spec and spec.mig_manager and spec.mig_manager.config and spec.mig_manager.config.name:
        yield spec.mig_manager.config.name


def _mounted(pod: GpuPod) -> Iterator[str]:
    """The ConfigMap that lies where CONFIG_FILE points to."""
    volumes = {volume.name: volume.config_map.name for volume in pod.spec.volumes if volume.config_map}
    for container in pod.spec.containers:
        for path in _config_files(container):
            for mount in container.volume_mounts:
                if PurePosixPath(path).is_relative_to(mount.mount_path) and mount.name in volumes:
                    yield volumes[mount.name]


def _config_files(container: GpuContainer) -> Iterator[str]:
    for variable in container.env:
        if variable.name in ("CONFIG_FILE", "MIG_PARTED_CONFIG_FILE") and variable.value.startswith("/"):
            yield variable.value
