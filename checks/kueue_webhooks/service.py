"""The Service that webhooks call exists, and its port leads to the manager."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.words import Namespaces, consequences, get
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import Deployment, Namespace, Service, ServicePort
from gpuctl.facts.selectors import has_all
from gpuctl.facts.state import Each, Known, State, attempt, value
from gpuctl.kueue.facts import NAMESPACES, Configured, kueue_managers, manager_configurations
from gpuctl.kueue.manager import Manager, target

APPLY = "apply the manifests or the Helm release of Kueue again"
APPLY_RISK = "risk: caBundle is empty for a moment"


@every(
    kueue_managers,
    "the Service that webhooks call exists, and its port leads to the manager",
    given(Maybe(NAMESPACES), Maybe(manager_configurations)),
)
def reachable_service(
    manager: Manager, namespaces: Namespaces, configurations: State[Each[Ref, Configured]]
) -> Iterator[Finding]:
    service = manager.service
    if service is None:
        yield _missing(manager, namespaces)
        return
    unlisted = _unlisted_ports(manager, service)
    if unlisted:
        yield _no_such_port(manager, service, unlisted, namespaces)
        return
    if manager.deployments:
        listens = value(configurations)[manager.ref].config.port
        for port, deployment in _astray(manager, service, listens):
            yield _leads_astray(manager, port, deployment, listens, namespaces)


def _missing(manager: Manager, namespaces: Namespaces) -> Finding:
    if _namespace_is_gone(manager, namespaces):
        return _left_behind(manager, namespaces, f"namespace {manager.ref.namespace} does not exist")
    deployments = attempt(lambda: manager.deployments)
    if isinstance(deployments, Known) and not deployments.value:
        why = f"nothing in namespace {manager.ref.namespace} runs Kueue"
        return _left_behind(manager, namespaces, why)
    return Finding(
        code=codes.SERVICE_MISSING,
        object=manager.ref,
        message=(
            f"{manager.ref}, which {len(manager.installation.hooks)} webhooks and conversions call, does not "
            f"exist: {consequences(manager.installation, namespaces)}"
        ),
        evidence=(*_callers(manager), *_look_alikes(manager)),
        look=f"{get(manager.ref)}; kubectl -n {manager.ref.namespace} get services",
        remedy=f"{APPLY}, so that Service and webhooks bear the same name; {APPLY_RISK}",
        cause=f"service {manager.ref.namespace}/{manager.ref.name}",
    )


def _namespace_is_gone(manager: Manager, namespaces: Namespaces) -> bool:
    if not isinstance(namespaces, Known):
        return False
    listed = namespaces.value
    found = attempt(lambda: listed.get(Ref(Namespace.of, manager.ref.namespace)))
    return isinstance(found, Known) and found.value is None


def _left_behind(manager: Manager, namespaces: Namespaces, why: str) -> Finding:
    sources = ", ".join(str(each.source) for each in manager.installation.registrations)
    return Finding(
        code=codes.LEFT_BEHIND,
        object=manager.ref,
        message=(
            f"Kueue was removed and left what calls its {manager.ref} behind ({sources}); {why}: "
            f"{consequences(manager.installation, namespaces)}"
        ),
        evidence=(*_callers(manager), Evidence(manager.ref, "", why)),
        look=get(manager.ref),
        remedy=(
            "if Kueue is meant to be gone, delete the webhook configurations that are left, and its CRDs "
            "only when their objects may go too (risk: with a CRD goes every queue and workload of it); "
            f"if not, {APPLY}"
        ),
        cause=f"service {manager.ref.namespace}/{manager.ref.name}",
    )


def _callers(manager: Manager) -> tuple[Evidence, ...]:
    """Who calls the Service."""
    return tuple(
        Evidence(each.source, "", f"{len(each.hooks)} calls go to {manager.ref}")
        for each in manager.installation.registrations
    )


def _look_alikes(manager: Manager) -> Iterator[Evidence]:
    """Other Services that lead to the manager: it may have been renamed."""
    found = attempt(lambda: (manager.neighbours, manager.deployments))
    if not isinstance(found, Known):
        return
    neighbours, deployments = found.value
    for service in neighbours:
        if any(_leads_to(service, each) for each in deployments):
            yield Evidence(service.ref, ".spec.selector", "selects the manager's pods")


def _leads_to(service: Service, deployment: Deployment) -> bool:
    selector = service.spec.selector
    return bool(selector) and has_all(deployment.spec.template.metadata.labels, selector)


def _called_ports(manager: Manager) -> tuple[int, ...]:
    called = {hook.client.service.port for hook in manager.installation.hooks if hook.client.service}
    return tuple(sorted(called))


def _unlisted_ports(manager: Manager, service: Service) -> tuple[int, ...]:
    listed = {port.port for port in service.spec.ports}
    return tuple(port for port in _called_ports(manager) if port not in listed)


def _no_such_port(
    manager: Manager, service: Service, ports: Sequence[int], namespaces: Namespaces
) -> Finding:
    named = ", ".join(map(str, ports))
    listed = ", ".join(str(port.port) for port in service.spec.ports) or "none"
    return Finding(
        code=codes.WRONG_PORT,
        object=manager.ref,
        message=(
            f"Webhooks call port {named} of {manager.ref}, which has port {listed}: "
            f"{consequences(manager.installation, namespaces)}"
        ),
        evidence=(Evidence(manager.ref, ".spec.ports", listed), *_callers(manager)),
        look=get(manager.ref),
        remedy=f"{APPLY}; {APPLY_RISK}",
        cause=f"service {manager.ref.namespace}/{manager.ref.name}",
    )


def _astray(manager: Manager, service: Service, listens: int) -> Iterator[tuple[ServicePort, Deployment]]:
    """Ports that are called and lead elsewhere than where the manager listens."""
    called = _called_ports(manager)
    for port in service.spec.ports:
        for deployment in manager.deployments:
            if port.port in called and target(port, deployment) != listens:
                yield port, deployment


def _leads_astray(
    manager: Manager, port: ServicePort, deployment: Deployment, listens: int, namespaces: Namespaces
) -> Finding:
    return Finding(
        code=codes.WRONG_PORT,
        object=manager.ref,
        message=(
            f"Port {port.port} of {manager.ref} leads to {port.target_port} of {deployment.ref}, which "
            f"listens on {listens}: {consequences(manager.installation, namespaces)}"
        ),
        evidence=(
            Evidence(manager.ref, ".spec.ports", f"{port.port} to {port.target_port}"),
            Evidence(deployment.ref, "", f"the manager listens on {listens}"),
        ),
        look=get(manager.ref),
        remedy=f"set the Service's targetPort and the manager's webhook.port alike, then {APPLY}; risk: none",
        mark=str(port.port),
        cause=f"service {manager.ref.namespace}/{manager.ref.name}",
    )
