"""The manager behind a webhook Service: what there is of it, and what keeps it from answering."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from gpuctl.facts.kinds import Ref, View
from gpuctl.facts.objects import (
    Container,
    ContainerStatus,
    Deployment,
    EndpointSlice,
    Pod,
    Service,
    ServicePort,
)
from gpuctl.facts.selectors import has_all, selects
from gpuctl.facts.state import Each, Known, NotKnown, State, attempt, value
from gpuctl.kueue.registrations import Installation

V = TypeVar("V", bound=View)

SLICE_OF = "kubernetes.io/service-name"
RESTARTS_IN_A_LOOP = 2
_IMAGE = re.compile(r"(.*/)?kueue(-rhel\d+)?([:@].*)?")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was read of the namespaces that webhooks call into. Each may be unknown by itself."""

    services: State[Each[Ref, Service]]
    deployments: State[Each[Ref, Deployment]]
    pods: State[Each[Ref, Pod]]
    slices: State[Each[Ref, EndpointSlice]]


@dataclass(frozen=True, slots=True)
class Manager:
    """One installation and what should answer for it. Touching what could not be read raises NotKnown."""

    installation: Installation
    around: Surroundings

    @property
    def ref(self) -> Ref:
        """The webhook Service, there or not."""
        return self.installation.service

    @property
    def service(self) -> Service | None:
        """The webhook Service; None if it does not exist."""
        return value(self.around.services).get(self.ref)

    @property
    def neighbours(self) -> tuple[Service, ...]:
        """The other Services of the namespace."""
        return tuple(each for each in self._here(self.around.services) if each.ref != self.ref)

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """The Deployments whose pods the Service selects; without the Service, those that run Kueue."""
        service = self.service
        here = self._here(self.around.deployments)
        if service is None:
            return tuple(each for each in here if runs_kueue(each))
        selector = service.spec.selector
        found = [each for each in here if selector and has_all(each.spec.template.metadata.labels, selector)]
        return tuple(each for each in found if _offers(each, service)) or tuple(found)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The Deployments' pods that are not on their way out."""
        selectors = [each.spec.selector for each in self.deployments]
        return tuple(
            pod
            for pod in self._here(self.around.pods)
            if any(selects(selector, pod.metadata.labels) for selector in selectors)
            and pod.metadata.deletion_timestamp is None
            and pod.status.phase not in {"Succeeded", "Failed"}
        )

    @property
    def ready_endpoints(self) -> int:
        """How many addresses the API server may call."""
        slices = (each for each in self._here(self.around.slices) if _belongs(each, self.ref))
        return sum(
            len(endpoint.addresses)
            for each in slices
            for endpoint in each.endpoints
            if endpoint.conditions.ready is not False
        )

    @property
    def images(self) -> tuple[str, ...]:
        """The images the Deployments ask for."""
        return tuple(dict.fromkeys(container(each, self.service).image for each in self.deployments))

    def _here(self, state: State[Each[Ref, V]]) -> Iterator[V]:
        """What is in this namespace: what could not be read in another is not this manager's matter."""
        found = value(state)
        here = {ref: each for ref, each in found.entries.items() if ref.namespace == self.ref.namespace}
        return iter(Each(here, found.holes))


def _belongs(each: EndpointSlice, service: Ref) -> bool:
    return each.metadata.labels.get(SLICE_OF) == service.name


def runs_kueue(deployment: Deployment) -> bool:
    """Whether a Deployment runs Kueue's manager, by its labels or its image."""
    labels = deployment.metadata.labels
    labelled = has_all(labels, {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"})
    return labelled or any(_IMAGE.fullmatch(each.image) for each in deployment.spec.template.spec.containers)


def container(deployment: Deployment, service: Service | None) -> Container:
    """The manager among a Deployment's containers: older releases have a proxy beside it."""
    containers = deployment.spec.template.spec.containers
    targets = {target(port, deployment) for port in service.spec.ports} if service else set()
    offering = [each for each in containers if targets & {port.container_port for port in each.ports}]
    named = [each for each in containers if each.name == "manager" or _IMAGE.fullmatch(each.image)]
    return next(iter((*offering, *named, *containers)), Container(""))


def target(port: ServicePort, deployment: Deployment) -> int | None:
    """The port of the pod that a Service's port leads to; None if no container names it."""
    if isinstance(port.target_port, int):
        return port.target_port or port.port
    named = {
        offered.name: offered.container_port
        for each in deployment.spec.template.spec.containers
        for offered in each.ports
    }
    return named.get(port.target_port)


def _offers(deployment: Deployment, service: Service) -> bool:
    offered = {
        port.container_port for each in deployment.spec.template.spec.containers for port in each.ports
    }
    return any(target(port, deployment) in offered for port in service.spec.ports)


class Trouble(StrEnum):
    """What keeps a manager from answering, from the root to the symptom."""

    GONE = "there is no manager"
    STOPPED = "the manager has zero replicas"
    CRASHING = "the manager crashes again and again"
    NOT_READY = "no pod of the manager is ready"
    NO_ENDPOINTS = "the Service has no ready endpoint"
    FEWER = "some pods of the manager are not ready"


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen, and where."""

    source: Ref
    where: str
    observed: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The one cause, on the object that has it, with the symptoms as observations. `answered`: other pods of
    the manager are ready."""

    trouble: Trouble
    object: Ref
    seen: tuple[Observation, ...]
    answered: bool = False


def diagnoses(manager: Manager) -> Iterator[Diagnosis]:
    """The cause that keeps the manager from answering, if there is one; then raises NotKnown for what could
    not be read on the way to it."""
    gap: NotKnown | None = None
    for step in _STEPS:
        try:
            found = step(manager)
        except NotKnown as unread:
            gap = gap or unread
            continue
        if found:
            yield found
            break
    if gap:
        raise gap


def silent_manager(managers: State[Each[Ref, Manager]]) -> Ref | None:
    """The Service of a manager that does not answer; None if all do, or that can't be told."""
    for _, manager in managers.value.known() if isinstance(managers, Known) else ():
        try:
            if any(not each.answered for each in diagnoses(manager)):
                return manager.ref
        except NotKnown:
            continue
    return None


def _gone(manager: Manager) -> Diagnosis | None:
    if manager.deployments or (manager.service is not None and manager.ready_endpoints):
        return None
    seen = Observation(manager.ref, ".spec.selector", "no Deployment of the namespace runs what it selects")
    return Diagnosis(Trouble.GONE, manager.ref, (seen, *_endpoints(manager)))


def _stopped(manager: Manager) -> Diagnosis | None:
    deployments = manager.deployments
    if not deployments or any(each.spec.replicas for each in deployments):
        return None
    seen = (Observation(each.ref, ".spec.replicas", "0") for each in deployments)
    return Diagnosis(Trouble.STOPPED, deployments[0].ref, (*seen, *_endpoints(manager)))


def _crashing(manager: Manager) -> Diagnosis | None:
    pods = manager.pods
    looping = [pod for pod in pods if any(_crashes(pod))]
    if not looping:
        return None
    seen = (each for pod in looping for each in _crashes(pod))
    subject = _owner(manager, looping[0])
    answered = any(is_ready(pod) for pod in pods)
    return Diagnosis(Trouble.CRASHING, subject, (*seen, *_endpoints(manager)), answered)


def _owner(manager: Manager, pod: Pod) -> Ref:
    """The Deployment of a pod: it keeps its name while pods come and go."""
    return next(each.ref for each in manager.deployments if selects(each.spec.selector, pod.metadata.labels))


def _not_ready(manager: Manager) -> Diagnosis | None:
    deployments = manager.deployments
    if not deployments or any(each.status.ready_replicas for each in deployments):
        return None
    seen = (*map(_availability, deployments), *_waiting(manager), *_endpoints(manager))
    return Diagnosis(Trouble.NOT_READY, deployments[0].ref, seen)


def _no_endpoints(manager: Manager) -> Diagnosis | None:
    if manager.service is None or manager.ready_endpoints:
        return None
    seen = (*_endpoints(manager), *map(_availability, manager.deployments))
    return Diagnosis(Trouble.NO_ENDPOINTS, manager.ref, seen)


def _fewer(manager: Manager) -> Diagnosis | None:
    short = [each for each in manager.deployments if _is_short(each)]
    if not short:
        return None
    seen = (*map(_availability, short), *_waiting(manager))
    return Diagnosis(Trouble.FEWER, short[0].ref, seen, answered=True)


def _is_short(deployment: Deployment) -> bool:
    stuck = any(
        each.type == "Progressing" and each.status == "False" for each in deployment.status.conditions
    )
    return stuck or deployment.status.available_replicas < deployment.spec.replicas


_STEPS: tuple[Callable[[Manager], Diagnosis | None], ...] = (
    _gone,
    _stopped,
    _crashing,
    _not_ready,
    _no_endpoints,
    _fewer,
)


def is_ready(pod: Pod) -> bool:
    """Whether a pod's Ready condition is True."""
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


def _crashes(pod: Pod) -> Iterator[Observation]:
    for index, status in enumerate(pod.status.container_statuses):
        if _in_a_loop(status):
            where = f".status.containerStatuses[{index}]"
            yield Observation(pod.ref, where, _crash(status))


def _in_a_loop(status: ContainerStatus) -> bool:
    waiting = status.state.waiting
    if waiting and waiting.reason == "CrashLoopBackOff":
        return True
    died = status.state.terminated or status.last_state.terminated
    return not status.ready and died is not None and status.restart_count >= RESTARTS_IN_A_LOOP


def _crash(status: ContainerStatus) -> str:
    died = status.state.terminated or status.last_state.terminated
    end = f", last exit {died.exit_code} {died.reason}".rstrip() if died else ""
    said = f": {died.message.strip()}" if died and died.message.strip() else ""
    return f"{status.name} restarted {status.restart_count} times{end}{said}"


def _waiting(manager: Manager) -> Iterator[Observation]:
    """Why pods are not ready, as far as that was read: it only adds to what is known already."""
    pods = attempt(lambda: manager.pods)
    if not isinstance(pods, Known):
        return
    if not pods.value:
        yield Observation(manager.ref, "", "the Deployment has no pod")
    for pod in pods.value:
        if not is_ready(pod):
            yield Observation(pod.ref, ".status", _why_waiting(pod))


def _why_waiting(pod: Pod) -> str:
    reasons = [
        f"{status.name} {status.state.waiting.reason} {status.state.waiting.message}".strip()
        for status in pod.status.container_statuses
        if status.state.waiting
    ]
    blocked = [
        f"{each.type} is {each.status} {each.reason} {each.message}".strip()
        for each in pod.status.conditions
        if each.status != "True" and each.type in {"PodScheduled", "Ready"}
    ]
    return "; ".join((f"phase {pod.status.phase or 'unknown'}", *reasons, *blocked))


def _availability(deployment: Deployment) -> Observation:
    status = deployment.status
    progress = [
        f"{each.type} is {each.status}: {each.reason}" for each in status.conditions if each.status != "True"
    ]
    counted = f"{status.available_replicas} of {deployment.spec.replicas} available"
    return Observation(deployment.ref, ".status", "; ".join((counted, *progress)))


def _endpoints(manager: Manager) -> Iterator[Observation]:
    """The symptom that the API server meets, as far as it was read."""
    ready = attempt(lambda: manager.ready_endpoints)
    if isinstance(ready, Known):
        yield Observation(manager.ref, "", f"{ready.value} ready endpoints in its EndpointSlices")
