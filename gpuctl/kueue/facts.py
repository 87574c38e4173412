"""What is read of Kueue and its webhooks, and what is derived from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gpuctl.facts.fact import Fact, Maybe, Named, Objects, Within, given
from gpuctl.facts.kinds import Ref, View
from gpuctl.facts.objects import (
    APIService,
    CustomResourceDefinition,
    Deployment,
    EndpointSlice,
    MutatingWebhookConfiguration,
    Namespace,
    Pod,
    Service,
    ValidatingWebhookConfiguration,
)
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, State, Unknown, attempt
from gpuctl.kueue import configuration, registrations
from gpuctl.kueue.configuration import ManagerConfig
from gpuctl.kueue.manager import Manager, Surroundings
from gpuctl.kueue.objects import (
    GROUP,
    VISIBILITY_GROUP,
    LocalQueueInNewVersion,
    LocalQueueInOldVersion,
    ManagerConfigMap,
)
from gpuctl.kueue.registrations import Installation, Registration

V = TypeVar("V", bound=View)

CUSTOM_RESOURCES = (
    "admissionchecks",
    "clusterqueues",
    "cohorts",
    "localqueues",
    "multikueueclusters",
    "multikueueconfigs",
    "provisioningrequestconfigs",
    "resourceflavors",
    "topologies",
    "workloadpriorityclasses",
    "workloads",
)
NO_KUEUE = Inapplicable("there is no Kueue here: none of its CRDs, webhooks or API services")


def as_collection(state: State[Each[Ref, V]]) -> Each[Ref, V]:
    """A list that could not be read, as a collection with a hole. Inapplicable stays what it is."""
    if isinstance(state, Known):
        return state.value
    if isinstance(state, Unknown):
        return Each(holes=(state,))
    raise NotKnown(state)


@given()
def Kueue_itself() -> Collection[Ref]:  # noqa: N802
    """The names of its CRDs."""
    return tuple(Ref(CustomResourceDefinition.of, f"{plural}.{GROUP}") for plural in CUSTOM_RESOURCES)


MUTATING = Objects(MutatingWebhookConfiguration)
VALIDATING = Objects(ValidatingWebhookConfiguration)
CRDS = Named(CustomResourceDefinition, Kueue_itself)
API_SERVICES = Objects(APIService)
NAMESPACES = Objects(Namespace)


@given(API_SERVICES)
def API_services_of_Kueue(services: Each[Ref, APIService]) -> Each[Ref, APIService]:  # noqa: N802
    return services.where(lambda each: each.spec.group == VISIBILITY_GROUP and each.spec.service is not None)


@given(Maybe(MUTATING), Maybe(VALIDATING), Maybe(CRDS), Maybe(API_services_of_Kueue))
def webhook_registrations(
    mutating: State[Each[Ref, MutatingWebhookConfiguration]],
    validating: State[Each[Ref, ValidatingWebhookConfiguration]],
    crds: State[Each[Ref, CustomResourceDefinition]],
    visibility: State[Each[Ref, APIService]],
) -> Each[Ref, Registration]:
    """Everything that registers a webhook of Kueue's; a hole where something could not be read."""
    lists: tuple[Each[Ref, Any], ...] = tuple(map(as_collection, (mutating, validating, crds)))
    holes = tuple(gap for each in lists for gap in each.gaps())
    configurations = [each for _, each in (*lists[0].known(), *lists[1].known())]
    found = registrations.registrations(configurations, [each for _, each in lists[2].known()])
    entries = {each.source: each for each in found}
    if not (entries or holes or lists[2].entries or _any(visibility)):
        raise NotKnown(NO_KUEUE)
    return Each({ref: Known(each) for ref, each in entries.items()}, holes)


def _any(visibility: State[Each[Ref, APIService]]) -> bool:
    """Whether there is, or may be, an API service of Kueue's."""
    if isinstance(visibility, Known):
        return bool(visibility.value.entries or visibility.value.holes)
    return isinstance(visibility, Unknown)


@given(webhook_registrations)
def kueue_installations(found: Each[Ref, Registration]) -> Each[Ref, Installation]:
    """By webhook Service: several may live side by side."""
    entries = registrations.installations(each for _, each in found.known())
    return Each({ref: Known(each) for ref, each in entries.items()}, tuple(found.gaps()))


@given(kueue_installations, Maybe(API_services_of_Kueue))
def namespaces_of_kueue(
    installations: Each[Ref, Installation], visibility: State[Each[Ref, APIService]]
) -> Collection[str]:
    """Where webhooks and API services call into."""
    called = {ref.namespace for ref, _ in installations.known()}
    if isinstance(visibility, Known):
        called |= {each.spec.service.namespace for _, each in visibility.value.known() if each.spec.service}
    return tuple(sorted(called))


SERVICES = Within(Service, namespaces_of_kueue)
DEPLOYMENTS = Within(Deployment, namespaces_of_kueue)
PODS = Within(Pod, namespaces_of_kueue)
SLICES = Within(EndpointSlice, namespaces_of_kueue)


@given(kueue_installations, Maybe(SERVICES), Maybe(DEPLOYMENTS), Maybe(PODS), Maybe(SLICES))
def kueue_managers(
    installations: Each[Ref, Installation],
    services: State[Each[Ref, Service]],
    deployments: State[Each[Ref, Deployment]],
    pods: State[Each[Ref, Pod]],
    slices: State[Each[Ref, EndpointSlice]],
) -> Each[Ref, Manager]:
    around = Surroundings(services, deployments, pods, slices)
    return installations.map(lambda each: Manager(each, around))


@given(kueue_managers)
def configuration_files_of_managers(managers: Each[Ref, Manager]) -> Collection[Ref]:
    """The ConfigMaps that the managers' Deployments mount. Deployments that can't be read have none."""
    return tuple(dict.fromkeys(ref for _, each in managers.known() for ref in mounted(each)))


def mounted(manager: Manager) -> tuple[Ref, ...]:
    """The ConfigMaps that a manager mounts."""
    deployments = attempt(lambda: manager.deployments)
    if not isinstance(deployments, Known):
        return ()
    return tuple(
        Ref(ManagerConfigMap.of, volume.config_map.name, each.metadata.namespace)
        for each in deployments.value
        for volume in each.spec.template.spec.volumes
        if volume.config_map
    )


CONFIG_MAPS = Named(ManagerConfigMap, configuration_files_of_managers)
# What leads to the manager's own settings: without one of them they are unknown.
READ_FOR_SETTINGS: tuple[Fact[Any], ...] = (MUTATING, VALIDATING, CRDS, SERVICES, DEPLOYMENTS, CONFIG_MAPS)


@dataclass(frozen=True, slots=True)
class Configured:
    """A manager's configuration and the ConfigMap it stands in (None: built-in defaults)."""

    source: Ref | None
    config: ManagerConfig


@given(kueue_managers, Maybe(CONFIG_MAPS))
def manager_configurations(
    managers: Each[Ref, Manager], config_maps: State[Each[Ref, ManagerConfigMap]]
) -> Each[Ref, Configured]:
    """By webhook Service. Found through the Deployment's volumes."""
    return managers.map(lambda manager: _configured(manager, as_collection(config_maps)))


def _configured(manager: Manager, config_maps: Each[Ref, ManagerConfigMap]) -> Configured:
    if not manager.deployments:
        raise NotKnown(Inapplicable(f"no Deployment runs a manager behind {manager.ref}"))
    for ref in mounted(manager):
        config_map = config_maps.get(ref)
        if config_map is not None and config_map.data.configuration is not None:
            return Configured(ref, configuration.parse(config_map.data.configuration))
    return Configured(None, ManagerConfig())


OLD_READS = Objects(LocalQueueInOldVersion)
NEW_READS = Objects(LocalQueueInNewVersion)


def served_versions(crds: State[Each[Ref, CustomResourceDefinition]]) -> Mapping[str, tuple[str, ...]]:
    """The versions each of Kueue's kinds is served in, as far as that was read."""
    return {each.spec.names.plural: tuple(_served(each)) for each in _known(crds)}


def _known(crds: State[Each[Ref, CustomResourceDefinition]]) -> Iterator[CustomResourceDefinition]:
    if isinstance(crds, Known):
        yield from (each for _, each in crds.value.known())


def _served(crd: CustomResourceDefinition) -> Iterator[str]:
    return (version.name for version in crd.spec.versions if version.served)
