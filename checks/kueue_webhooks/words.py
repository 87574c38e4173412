"""What the findings of this check have in common: how to look, what to do, what it breaks."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from gpuctl.audit.finding import Evidence
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import CustomResourceDefinition, Namespace
from gpuctl.facts.state import Each, State
from gpuctl.kueue.manager import Manager
from gpuctl.kueue.reach import broken_reads, reach
from gpuctl.kueue.registrations import Hook, Installation, Registration
from gpuctl.kueue.restarts import RESTART, deployment_behind, plan_of_restart

Namespaces = State[Each[Ref, Namespace]]
Managers = State[Each[Ref, Manager]]


def get(ref: Ref, output: str = "yaml") -> str:
    """The command that shows an object."""
    place = f"-n {shlex.quote(ref.namespace)} " if ref.namespace else ""
    return f"kubectl {place}get {ref.kind.resource} {shlex.quote(ref.name)} -o {output}"


def show_bundles(source: Ref) -> str:
    """The command that shows the caBundles of a configuration or CRD."""
    if source.kind == CustomResourceDefinition.of:
        return get(source, "jsonpath='{.spec.conversion.webhook.clientConfig}'")
    return get(source, """jsonpath='{range .webhooks[*]}{.name} {.clientConfig.caBundle}{"\\n"}{end}'""")


def bundle_at(source: Ref, hook: Hook, observed: str) -> Evidence:
    """What a hook's caBundle is."""
    return Evidence(source, hook.where, observed)


def writer(registration: Registration) -> Evidence:
    """Who wrote the caBundle last, and when."""
    written = registration.written
    if written is None:
        observed = "does not tell who wrote caBundle: its age is unknown"
    else:
        observed = f"caBundle last written by {written.by or 'an unnamed writer'} at {_time(written.at)}"
    return Evidence(registration.source, ".metadata.managedFields", observed)


def _time(at: object) -> str:
    return str(at) if at else "an unknown time"


def consequence(registration: Registration, hooks: Iterable[Hook], namespaces: Namespaces) -> str:
    """What does not work while these hooks of one configuration or CRD fail: the end of a sentence."""
    if registration.converted:
        return broken_reads(registration.converted)
    return str(reach(hooks, namespaces))


def consequences(installation: Installation, namespaces: Namespaces) -> str:
    """What does not work while nothing answers for an installation: the end of a sentence."""
    converted = [each.converted for each in installation.registrations if each.converted]
    broken = [each.plural for each in converted if each.others]
    parts = [str(reach(installation.webhooks, namespaces))] if installation.webhooks else []
    if broken:
        parts.append(f"{', '.join(broken)} can't be read or written in versions other than the stored one")
    return "; ".join(parts) or "nothing is called yet"


def cure(remedy: str) -> str | None:
    """The runbook that a remedy names."""
    return RESTART if f"gpuctl plan {RESTART}" in remedy else None


def restart(service: Ref | None, managers: Managers) -> str:
    """The remedy that lets Kueue make and inject its certificates anew, with its risk."""
    deployment = deployment_behind(service, managers)
    if deployment is None:
        place = f" in namespace {service.namespace}" if service else ""
        return f"restart the Deployment of Kueue's manager{place}; {_RESTART_RISK}"
    command = f"kubectl -n {shlex.quote(deployment.namespace)} rollout restart deployment/"
    plan = plan_of_restart(deployment)
    return f"{command}{shlex.quote(deployment.name)}, or guarded and verified: `{plan}`; {_RESTART_RISK}"


_RESTART_RISK = (
    "risk: with one replica, what its webhooks match is refused for 10 to 30 s; running pods are untouched"
)


def renew(registration: Registration, managers: Managers) -> str:
    """The remedy for a bad caBundle: it is its owner's to write, so the owner is set going."""
    if registration.injected_from:
        return (
            f"see why cert-manager does not inject Certificate {registration.injected_from} "
            "(`kubectl -n cert-manager logs deployment/cert-manager-cainjector`), then renew it with "
            "`cmctl renew`; risk: none for running pods. Don't patch caBundle by hand: it is overwritten"
        )
    service = next((hook.service for hook in registration.hooks if hook.service), None)
    return (
        f"{restart(service, managers)}. Its rotator then writes every caBundle anew. "
        "Don't patch caBundle by hand: it is overwritten"
    )


def counted(hooks: int, registration: Registration) -> str:
    """`2 of 21 webhooks of MutatingWebhookConfiguration x`, or `the conversion of …` for a CRD."""
    if registration.converted:
        return f"the conversion of {registration.source}"
    return f"{hooks} of {len(registration.hooks)} webhooks of {registration.source}"


def sentence(text: str) -> str:
    """With a capital letter and no stop, as findings are written."""
    return text[:1].upper() + text[1:]
