"""Views of Kueue's objects. One struct bears the fields of all served versions."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gpuctl.facts.kinds import Kind, View

GROUP = "kueue.x-k8s.io"
VISIBILITY_GROUP = "visibility.kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")

RESOURCE_FLAVOR = Kind(GROUP, VERSIONS, "ResourceFlavor", "resourceflavors", namespaced=False)


class LocalQueueInOldVersion(View, frozen=True):
    """A LocalQueue, asked for in v1beta1 and in no other version."""

    of: ClassVar[Kind] = Kind(GROUP, ("v1beta1",), "LocalQueue", "localqueues", namespaced=True)


class LocalQueueInNewVersion(View, frozen=True):
    """A LocalQueue, asked for in v1beta2 and in no other version."""

    of: ClassVar[Kind] = Kind(GROUP, ("v1beta2",), "LocalQueue", "localqueues", namespaced=True)


class ManagerData(msgspec.Struct, frozen=True):
    configuration: str | None = msgspec.field(default=None, name="controller_manager_config.yaml")


class ManagerConfigMap(View, frozen=True):
    """The ConfigMap that a manager's Deployment mounts."""

    of: ClassVar[Kind] = Kind("", ("v1",), "ConfigMap", "configmaps", namespaced=True)
    keys: ClassVar[tuple[str, ...]] = ("controller_manager_config.yaml",)
    data: ManagerData = ManagerData()
