"""A manager answers behind the webhook Service. This assertion owns the cause; endpoints are evidence."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Code, Evidence, Finding, Severity
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.words import Namespaces, consequences, get
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Inapplicable, NotKnown
from gpuctl.kueue.facts import NAMESPACES, kueue_managers
from gpuctl.kueue.manager import Diagnosis, Manager, Trouble, diagnoses

CODES: dict[Trouble, Code] = {
    Trouble.GONE: codes.NO_MANAGER,
    Trouble.STOPPED: codes.ZERO_REPLICAS,
    Trouble.CRASHING: codes.CRASHING,
    Trouble.NOT_READY: codes.NOT_READY,
    Trouble.NO_ENDPOINTS: codes.NO_ENDPOINTS,
    Trouble.FEWER: codes.FEWER_PODS,
}


@every(kueue_managers, "a manager of Kueue answers behind the webhook Service", given(Maybe(NAMESPACES)))
def answering_manager(manager: Manager, namespaces: Namespaces) -> Iterator[Finding]:
    if manager.service is None and not manager.deployments:
        raise NotKnown(Inapplicable(f"{manager.ref} and all behind it are gone"))
    for diagnosis in diagnoses(manager):
        yield _finding(manager, diagnosis, namespaces)


def cause(service: Ref) -> str:
    """What findings share that come from a manager that does not answer."""
    return f"manager behind {service.namespace}/{service.name}"


def _finding(manager: Manager, diagnosis: Diagnosis, namespaces: Namespaces) -> Finding:
    code = CODES[diagnosis.trouble]
    says = _says(manager, diagnosis)
    refused = "" if diagnosis.answered else f": {consequences(manager.installation, namespaces)}"
    return Finding(
        code=code,
        object=diagnosis.object,
        message=says + refused,
        evidence=tuple(Evidence(each.source, each.where, each.observed) for each in diagnosis.seen),
        look=_look(manager, diagnosis),
        remedy=_remedy(diagnosis),
        cause=cause(manager.ref),
        severity=Severity.WARNING if diagnosis.answered else None,
    )


def _says(manager: Manager, diagnosis: Diagnosis) -> str:
    subject = diagnosis.object
    others = "; its webhooks are answered by other pods" if diagnosis.answered else ""
    return {
        Trouble.GONE: f"Nothing runs Kueue's manager behind {subject}",
        Trouble.STOPPED: f"{subject} has zero replicas, so {manager.ref} has no endpoint",
        Trouble.CRASHING: f"Kueue's manager crashes again and again in {subject}{others}",
        Trouble.NOT_READY: f"No pod of {subject} is ready, so nothing answers Kueue's webhooks",
        Trouble.NO_ENDPOINTS: f"{subject} has no ready endpoint although its manager runs",
        Trouble.FEWER: f"Some pods of {subject} are not ready{others}",
    }[diagnosis.trouble]


def _look(manager: Manager, diagnosis: Diagnosis) -> str:
    namespace = shlex.quote(manager.ref.namespace)
    pods = f"kubectl -n {namespace} get deployments,pods,endpointslices -o wide"
    if diagnosis.trouble is Trouble.CRASHING:
        crashed = shlex.quote(diagnosis.seen[0].source.name)
        return f"kubectl -n {namespace} logs {crashed} --previous; {pods}"
    if diagnosis.trouble is Trouble.NO_ENDPOINTS:
        return f"{get(manager.ref)}; {pods}"
    return pods


def _remedy(diagnosis: Diagnosis) -> str:
    subject = diagnosis.object
    place = f"kubectl -n {shlex.quote(subject.namespace)}"
    return {
        Trouble.GONE: (
            "apply the manifests or the Helm release of Kueue again; risk: caBundle is empty for a moment"
        ),
        Trouble.STOPPED: (
            f"`{place} scale deployment/{shlex.quote(subject.name)} --replicas=1`; "
            "risk: none, waiting workloads are admitted again"
        ),
        Trouble.CRASHING: (
            "read the last lines before the crash: `acquiring secret to update certificates … not found` "
            "means that the webhook's Secret was deleted and must come back from the manifests (empty: the "
            "manager fills it, but does not make it); risk: none for running pods"
        ),
        Trouble.NOT_READY: (
            "if it has only just started, wait 30 to 90 s and check again; else see why with "
            f"`{place} describe deployment/{shlex.quote(subject.name)}` and its pods' logs; risk: none"
        ),
        Trouble.NO_ENDPOINTS: (
            "compare the Service's selector with the pods' labels and apply the manifests again; risk: none"
        ),
        Trouble.FEWER: f"see why with `{place} describe deployment/{shlex.quote(subject.name)}`; risk: none",
    }[diagnosis.trouble]
