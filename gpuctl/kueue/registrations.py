"""Which webhooks and conversions are Kueue's. Names of objects vary, so they are found by what they do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import (
    CustomResourceDefinition,
    CustomResourceVersion,
    FieldWriter,
    LabelSelector,
    MutatingWebhookConfiguration,
    Service,
    TracedMeta,
    ValidatingWebhookConfiguration,
    Webhook,
    WebhookClientConfig,
    WebhookRule,
)
from gpuctl.kueue.objects import GROUP

Configuration = MutatingWebhookConfiguration | ValidatingWebhookConfiguration

_OWN_NAME = re.compile(r"[mv](resourceflavor|clusterqueue)\.kb\.io")
_OWN_PATH = re.compile(r"/(mutate|validate)-kueue-x-k8s-io-")
INJECTION = "cert-manager.io/inject-ca-from"
CONVERSION = "conversion"
EVERYTHING = LabelSelector()


@dataclass(frozen=True, slots=True)
class Hook:
    """One address that the API server calls. `where` is the path of its caBundle inside the object."""

    name: str
    where: str
    client: WebhookClientConfig
    rules: tuple[WebhookRule, ...] = ()
    fails_closed: bool = True
    namespaces: LabelSelector = EVERYTHING
    objects: LabelSelector = EVERYTHING

    @property
    def service(self) -> Ref | None:
        """The Service it calls; None if it calls a URL or nothing."""
        service = self.client.service
        return Ref(Service.of, service.name, service.namespace) if service else None

    @property
    def converts(self) -> bool:
        """Whether it is a CRD's conversion, which is called on reads too."""
        return self.name == CONVERSION


@dataclass(frozen=True, slots=True)
class Written:
    """The last write of a caBundle. `at` is None where managedFields does not tell."""

    by: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Converted:
    """A CRD whose versions a webhook converts into each other."""

    plural: str
    versions: tuple[CustomResourceVersion, ...]

    @property
    def stored(self) -> str:
        """The version that objects are written in."""
        return next((version.name for version in self.versions if version.storage), "")

    @property
    def others(self) -> tuple[str, ...]:
        """The versions that take a conversion to read or write."""
        return tuple(each.name for each in self.versions if each.served and not each.storage)


@dataclass(frozen=True, slots=True)
class Registration:
    """A webhook configuration or CRD, with those of its hooks that are Kueue's."""

    source: Ref
    hooks: tuple[Hook, ...]
    written: Written | None
    injected_from: str
    converted: Converted | None = None

    def towards(self, service: Ref) -> Registration:
        """The same with only the hooks that call one Service."""
        return replace(self, hooks=tuple(hook for hook in self.hooks if hook.service == service))


@dataclass(frozen=True, slots=True)
class Installation:
    """One Kueue: all that calls one webhook Service."""

    service: Ref
    registrations: tuple[Registration, ...]

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Every hook that calls it."""
        return tuple(hook for each in self.registrations for hook in each.hooks)

    @property
    def webhooks(self) -> tuple[Hook, ...]:
        """The admission webhooks among them."""
        return tuple(hook for hook in self.hooks if not hook.converts)

    @property
    def dns_name(self) -> str:
        """The name its certificate must bear."""
        return f"{self.service.name}.{self.service.namespace}.svc"


def registrations(
    configurations: Iterable[Configuration], crds: Iterable[CustomResourceDefinition]
) -> Iterator[Registration]:
    """Everything that registers a webhook of Kueue's.

    A configuration is Kueue's if it has one of Kueue's own webhooks, by full name or path (the suffix
    `.kb.io` alone is every kubebuilder operator's); so is every webhook that calls the same Service.
    """
    configurations = tuple(configurations)
    services = _services(configurations)
    for configuration in configurations:
        hooks = tuple(_hooks(configuration, services))
        if hooks:
            yield _registration(configuration.ref, configuration.metadata, hooks)
    for crd in crds:
        hook = _conversion(crd)
        if hook:
            converted = Converted(crd.spec.names.plural, crd.spec.versions)
            yield replace(_registration(crd.ref, crd.metadata, (hook,)), converted=converted)


def installations(found: Iterable[Registration]) -> dict[Ref, Installation]:
    """The installations, by their webhook Service. Several may live side by side."""
    found = tuple(found)
    services = {hook.service for each in found for hook in each.hooks if hook.service}
    return {service: Installation(service, tuple(_parts(service, found))) for service in _sorted(services)}


def _sorted(services: Iterable[Ref]) -> list[Ref]:
    return sorted(services, key=lambda ref: (ref.namespace, ref.name))


def _parts(service: Ref, found: Iterable[Registration]) -> Iterator[Registration]:
    for each in found:
        part = each.towards(service)
        if part.hooks:
            yield part


def _registration(source: Ref, metadata: TracedMeta, hooks: tuple[Hook, ...]) -> Registration:
    injected_from = metadata.annotations.get(INJECTION, "")
    return Registration(source, hooks, last_write(metadata.managed_fields), injected_from)


def is_own_name(name: str) -> bool:
    """Whether a webhook of this name is Kueue's for its ResourceFlavors or ClusterQueues."""
    return bool(_OWN_NAME.fullmatch(name))


def is_own(webhook: Webhook) -> bool:
    """Whether a webhook can be nobody's but Kueue's."""
    service = webhook.client_config.service
    path = service.path if service else webhook.client_config.url
    return is_own_name(webhook.name) or bool(_OWN_PATH.search(path))


def _services(configurations: Iterable[Configuration]) -> frozenset[tuple[str, str]]:
    own = (hook for each in configurations for hook in each.webhooks if is_own(hook))
    return frozenset(
        (hook.client_config.service.namespace, hook.client_config.service.name)
        for hook in own
        if hook.client_config.service
    )


def _hooks(configuration: Configuration, services: Collection[tuple[str, str]]) -> Iterator[Hook]:
    for webhook in configuration.webhooks:
        service = webhook.client_config.service
        if is_own(webhook) or (service and (service.namespace, service.name) in services):
            yield Hook(
                name=webhook.name,
                where=f'.webhooks[?(@.name=="{webhook.name}")].clientConfig.caBundle',
                client=webhook.client_config,
                rules=webhook.rules,
                fails_closed=webhook.failure_policy == "Fail",
                namespaces=webhook.namespace_selector,
                objects=webhook.object_selector,
            )


def _conversion(crd: CustomResourceDefinition) -> Hook | None:
    conversion = crd.spec.conversion
    if crd.spec.group != GROUP or conversion.strategy != "Webhook":
        return None
    client = conversion.webhook.client_config if conversion.webhook else WebhookClientConfig()
    return Hook(CONVERSION, ".spec.conversion.webhook.clientConfig.caBundle", client)


def last_write(writers: Iterable[FieldWriter]) -> Written | None:
    """Who wrote a caBundle last, and when. None: managedFields does not tell."""
    owners = [writer for writer in writers if _owns_bundle(writer.fields)]
    if not owners:
        return None
    last = max(owners, key=lambda writer: writer.time.timestamp() if writer.time else 0.0)
    return Written(last.manager, last.time)


def _owns_bundle(fields: Mapping[str, Any]) -> bool:
    """Whether a caBundle of a webhook or a conversion is among these fields."""
    hooks = fields.get("f:webhooks")
    below = [*hooks.values()] if isinstance(hooks, dict) else []
    conversion = fields.get("f:spec")
    for key in ("f:conversion", "f:webhook"):
        conversion = conversion.get(key) if isinstance(conversion, dict) else None
    return any(_client_owns_bundle(each) for each in (*below, conversion))


def _client_owns_bundle(fields: Any) -> bool:
    client = fields.get("f:clientConfig") if isinstance(fields, dict) else None
    return isinstance(client, dict) and "f:caBundle" in client
