"""How Kueue's webhooks are tried rather than looked at: by creations that are not stored, by TLS handshakes,
and by the Secret that the served certificate comes from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from gpuctl.facts.fact import NOW, DryRun, Fact, Handshakes, Maybe, Named, given
from gpuctl.facts.kinds import Answer, Attempt, Kind, Meta, Ref, Rule
from gpuctl.facts.objects import CustomResourceDefinition, Deployment, Namespace
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown, attempt, value
from gpuctl.facts.tls import ServedPort
from gpuctl.kueue import certificates
from gpuctl.kueue.answers import CERTIFICATE, LEARNED_NOTHING, Meaning, read
from gpuctl.kueue.facts import (
    CRDS,
    NAMESPACES,
    NEW_READS,
    Configured,
    kueue_installations,
    kueue_managers,
    manager_configurations,
    served_versions,
)
from gpuctl.kueue.manager import Manager, container, diagnoses, is_ready, target
from gpuctl.kueue.objects import GROUP, RESOURCE_FLAVOR, VERSIONS, Job, WebhookSecret, Workload
from gpuctl.kueue.owners import is_rotating, writer_is_owner
from gpuctl.kueue.reach import NAME_LABEL, covers
from gpuctl.kueue.registrations import Hook, Installation, Registration

# What may pass, and for how many seconds it is asked again. A call that times out takes ten of them.
_PASSES: Final[Mapping[Meaning, float]] = {
    Meaning.TRANSIENT: 30.0,
    Meaning.REFUSED: 30.0,
    Meaning.NO_ENDPOINTS: 30.0,
    Meaning.NO_NETWORK: 25.0,
    Meaning.NOT_SERVED: 10.0,
    Meaning.DID_NOT_RUN: 3.0,
}
# Pods serve a new certificate when their kubelet has brought it: mostly within the first time.
ROTATION: Final = 90
AT_MOST: Final = 150
_A_LOOK: Final = 10.0

_POD: Final[Mapping[str, Any]] = {
    "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "none", "image": "none", "resources": {"requests": {"cpu": "1m"}}}],
    }
}


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long an answer may still turn into another one. `shown`: the data shows the fault already, so
    that waiting would tell nothing."""

    own: frozenset[str]
    shown: bool
    rotated: datetime | None

    def __call__(self, answer: Answer) -> float:
        if self.shown:
            return 0.0
        meaning = read(answer, self.own).meaning
        if meaning in CERTIFICATE and self.rotated:
            return _while_rotating((answer.at - self.rotated).total_seconds())
        return _PASSES.get(meaning, 0.0)


def _while_rotating(age: float) -> float:
    """Early in a rotation a short wait serves, for it is told from a fault; late in it, it has to end."""
    if age + _A_LOOK < ROTATION:
        return _A_LOOK
    return max(0.0, AT_MOST - age)


@given(kueue_installations, Maybe(kueue_managers), NOW)
def patience_with_kueue(
    installations: Each[Ref, Installation], managers: State[Each[Ref, Manager]], now: datetime
) -> Patience:
    known = [each for _, each in installations.known()]
    hooks = [hook for each in known for hook in each.webhooks]
    rotated = [
        each.written.at
        for installation in known
        for each in installation.registrations
        if is_rotating(each, now, AT_MOST) and each.written and each.written.at
    ]
    shown = any(_unusable(hook, now) for hook in hooks) or _not_answering(managers)
    return Patience(frozenset(hook.name for hook in hooks), shown, max(rotated, default=None))


def _unusable(hook: Hook, now: datetime) -> bool:
    if certificates.is_empty(hook.client.ca_bundle):
        return True
    bundle = attempt(lambda: certificates.parse(hook.client.ca_bundle))
    if not isinstance(bundle, Known):
        return False
    return bool(bundle.value.damage) or all(each.not_after < now for each in bundle.value.certificates)


def _not_answering(managers: State[Each[Ref, Manager]]) -> bool:
    """Whether it is known that nobody answers behind one of the Services."""
    return isinstance(managers, Known) and any(_is_down(each) for _, each in managers.value.known())


def _is_down(manager: Manager) -> bool:
    if attempt(lambda: manager.service) == Known(None):
        return True
    try:
        return any(not each.answered for each in diagnoses(manager))
    except NotKnown:
        return False


# Creations


def _named(kind: Kind, version: str, namespace: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "generateName": "gpuctl-probe-",
        "labels": {"app.kubernetes.io/managed-by": "gpuctl"},
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": kind.api_version(version), "kind": kind.kind, "metadata": metadata}


@given(patience_with_kueue, Maybe(CRDS))
def a_resource_flavor_to_try(
    patience: Patience, crds: State[Each[Ref, CustomResourceDefinition]]
) -> Collection[Attempt]:
    """The creation by which Kueue's maintainers probe their own webhooks; nothing of it is stored."""
    body = _named(RESOURCE_FLAVOR, _version(crds, "resourceflavors"))
    body["spec"] = {"nodeLabels": {"gpuctl.dev/probe": "webhooks"}}
    return (Attempt(RESOURCE_FLAVOR, "", body, patience=patience),)


def _version(crds: State[Each[Ref, CustomResourceDefinition]], plural: str) -> str:
    served = served_versions(crds).get(plural, VERSIONS)
    return next((version for version in VERSIONS if version in served), VERSIONS[0])


DRY_RUN: Fact[Any] = DryRun(a_resource_flavor_to_try, (Rule(GROUP, "resourceflavors", "create"),))


@given(kueue_installations, Maybe(NAMESPACES), Maybe(NEW_READS))
def namespaces_to_try_in(
    installations: Each[Ref, Installation],
    namespaces: State[Each[Ref, Namespace]],
    queues: State[Each[Ref, Any]],
) -> Mapping[str, State[str]]:
    """By kind, the namespace where a creation meets Kueue's webhooks: one with a LocalQueue if there is.
    Where namespaces can't be listed, the one that every cluster has may do."""
    hooks = [hook for _, each in installations.known() for hook in each.webhooks]
    creating = {kind: [each for each in hooks if _creates(each, kind)] for kind in ("workloads", "jobs")}
    if not isinstance(namespaces, Known):
        return {kind: _default(some, namespaces) for kind, some in creating.items()}
    known = [each for _, each in namespaces.value.known() if each.status.phase != "Terminating"]
    used = {ref.namespace for ref in queues.value.entries} if isinstance(queues, Known) else set()
    own = {each.service.namespace for _, each in installations.known()}
    managed = {kind: sorted(_managed(known, some) - own, key=_last) for kind, some in creating.items()}
    gap = next(namespaces.value.gaps(), None)
    return {kind: _best(names, used) or gap or _nowhere(kind) for kind, names in managed.items()}


def _best(names: Collection[str], used: Collection[str]) -> Known[str] | None:
    return next((Known(each) for each in (*(name for name in names if name in used), *names)), None)


def _nowhere(kind: str) -> Inapplicable:
    return Inapplicable(f"in no namespace Kueue's webhooks are called for {kind}")


def _default(hooks: Collection[Hook], unread: Unknown | Inapplicable) -> State[str]:
    """The namespace `default`, if its name alone tells that a webhook is called there."""
    default = Namespace(metadata=Meta(name="default"))
    told = any(_needs_a_name_alone(each) and covers(each, default) for each in hooks)
    return Known(default.metadata.name) if told else unread


def _needs_a_name_alone(hook: Hook) -> bool:
    expressions = (each.key for each in hook.namespaces.match_expressions)
    return {*hook.namespaces.match_labels, *expressions} <= {NAME_LABEL}


def _creates(hook: Hook, plural: str) -> bool:
    group = {"workloads": GROUP, "jobs": "batch"}[plural]
    return any(
        group in rule.api_groups and plural in rule.resources and "CREATE" in rule.operations
        for rule in hook.rules
    )


def _managed(namespaces: Collection[Namespace], hooks: Collection[Hook]) -> set[str]:
    return {each.metadata.name for each in namespaces if any(covers(hook, each) for hook in hooks)}


def _last(name: str) -> tuple[bool, bool, str]:
    """Kubernetes' own namespaces come last, and `default` before the others."""
    return name.startswith("kube-"), name != "default", name


@given(patience_with_kueue, namespaces_to_try_in, Maybe(CRDS))
def a_workload_to_try(
    patience: Patience, places: Mapping[str, State[str]], crds: State[Each[Ref, CustomResourceDefinition]]
) -> Collection[Attempt]:
    place = value(places["workloads"])
    body = _named(Workload.of, _version(crds, "workloads"), place)
    body["spec"] = {"active": False, "podSets": [{"name": "main", "count": 1, "template": _POD}]}
    return (Attempt(Workload.of, place, body, on_request=True, patience=patience),)


@given(patience_with_kueue, namespaces_to_try_in)
def a_suspended_job_to_try(patience: Patience, places: Mapping[str, State[str]]) -> Collection[Attempt]:
    place = value(places["jobs"])
    body = _named(Job.of, Job.of.versions[0], place)
    body["spec"] = {"suspend": True, "template": _POD}
    return (Attempt(Job.of, place, body, on_request=True, patience=patience),)


WORKLOAD_DRY_RUN: Fact[Any] = DryRun(a_workload_to_try, (Rule(GROUP, "workloads", "create", True),))
JOB_DRY_RUN: Fact[Any] = DryRun(a_suspended_job_to_try, (Rule("batch", "jobs", "create", True),))


# Handshakes


@given(kueue_managers, Maybe(DRY_RUN), patience_with_kueue)
def webhook_ports(
    managers: Each[Ref, Manager], tried: State[Each[Attempt, Answer]], patience: Patience
) -> Collection[ServedPort]:
    """Where to look at the served certificate, unless a dry run has told what it is worth."""
    if _told(tried, patience.own):
        raise NotKnown(Inapplicable("the dry run has told"))
    return tuple(port for _, manager in managers.known() for port in _ports(manager))


def _told(tried: State[Each[Attempt, Answer]], own: Collection[str]) -> bool:
    answers = [each for _, each in tried.value.known()] if isinstance(tried, Known) else []
    return any(read(each, own).meaning not in LEARNED_NOTHING for each in answers)


def _ports(manager: Manager) -> Iterator[ServedPort]:
    service = manager.service
    if service is None:
        raise NotKnown(Inapplicable(f"{manager.ref} does not exist"))
    called = {hook.client.service.port for hook in manager.installation.hooks if hook.client.service}
    pod = min((each.ref for each in manager.pods if is_ready(each)), key=str, default=None)
    if pod is None:
        raise NotKnown(Unknown(Reason.NO_POD, "no pod of the manager is ready", str(manager.ref)))
    for port in service.spec.ports:
        here = next((target(port, each) for each in manager.deployments), None)
        if port.port in called and here:
            yield ServedPort(manager.ref, port.port, manager.installation.dns_name, pod, here)


HANDSHAKES = Handshakes(webhook_ports)


# The Secret


@given(kueue_managers, Maybe(manager_configurations))
def webhook_secrets(
    managers: Each[Ref, Manager], configured: State[Each[Ref, Configured]]
) -> Collection[Ref]:
    """The Secrets that managers read their certificates from, found by the Deployments' volumes, as far as
    those were read."""
    found = (attempt(partial(mounted_secret, manager, configured)) for _, manager in managers.known())
    return tuple(dict.fromkeys(each.value for each in found if isinstance(each, Known) and each.value))


def mounted_secret(manager: Manager, configured: State[Each[Ref, Configured]]) -> Ref | None:
    """The Secret that is mounted where the manager reads its certificate; None if there is none."""
    folder = value(configured)[manager.ref].config.cert_dir
    for deployment in manager.deployments:
        name = _secret_at(deployment, manager, folder)
        if name:
            return Ref(WebhookSecret.of, name, deployment.metadata.namespace)
    return None


def _secret_at(deployment: Deployment, manager: Manager, folder: str) -> str:
    spec = deployment.spec.template.spec
    secrets = {each.name: each.secret.secret_name for each in spec.volumes if each.secret}
    mounts = container(deployment, manager.service).volume_mounts
    inside = [each for each in mounts if f"{folder}/".startswith(f"{each.mount_path.rstrip('/')}/")]
    return next((secrets[each.name] for each in inside if each.name in secrets), "")


SECRETS = Named(WebhookSecret, webhook_secrets)


def rotating(
    doubted: Collection[Registration], written: Collection[Registration], at: datetime, seconds: int
) -> bool:
    """Whether the doubted caBundles are the owner's own work, and any of those `written` is so new that pods
    and the rest may still follow. What somebody wrote by hand is no rotation, whatever the owner does."""
    by_owner = all(writer_is_owner(each) for each in doubted)
    return by_owner and any(is_rotating(each, at, seconds) for each in written)
