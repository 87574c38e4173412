"""The manager's own configuration, as far as its webhooks depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.facts.state import NotKnown, Reason, Unknown

WEBHOOK_PORT = 9443
CERT_DIR = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - the default of controller-runtime
SERVICE_NAME = "kueue-webhook-service"
SECRET_NAME = "kueue-webhook-server-cert"  # noqa: S105 - the name of an object
DEFAULT_FRAMEWORKS = frozenset({"batch/job"})


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """What the manager was told; the defaults are those of Kueue."""

    internal_certificates: bool = True
    service_name: str = SERVICE_NAME
    secret_name: str = SECRET_NAME
    port: int = WEBHOOK_PORT
    cert_dir: str = CERT_DIR
    frameworks: frozenset[str] = DEFAULT_FRAMEWORKS


def parse(text: str | None) -> ManagerConfig:
    """Reads the configuration file. Raises NotKnown if it is not one."""
    import yaml

    try:
        content = yaml.safe_load(text or "")
    except (yaml.YAMLError, ValueError) as error:
        raise _malformed(" ".join(str(error).split())) from error
    if content is not None and not isinstance(content, Mapping):
        raise _malformed("it is not a mapping")
    return _config(content or {})


def _config(content: Mapping[str, Any]) -> ManagerConfig:
    certificates, webhook = _part(content, "internalCertManagement"), _part(content, "webhook")
    frameworks = _part(content, "integrations").get("frameworks")
    if frameworks is not None and not isinstance(frameworks, list):
        raise _malformed("integrations.frameworks is not a list")
    return ManagerConfig(
        internal_certificates=certificates.get("enable") is not False,
        service_name=str(certificates.get("webhookServiceName") or SERVICE_NAME),
        secret_name=str(certificates.get("webhookSecretName") or SECRET_NAME),
        port=_port(webhook.get("port")),
        cert_dir=str(webhook.get("certDir") or CERT_DIR),
        frameworks=DEFAULT_FRAMEWORKS if frameworks is None else frozenset(map(str, frameworks)),
    )


def _part(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = content.get(key)
    if part is not None and not isinstance(part, Mapping):
        raise _malformed(f"{key} is not a mapping")
    return part or {}


def _port(given: Any) -> int:
    if given is None:
        return WEBHOOK_PORT
    if isinstance(given, int) and not isinstance(given, bool):
        return given or WEBHOOK_PORT
    raise _malformed("webhook.port is not a number")


def _malformed(message: str) -> NotKnown:
    return NotKnown(Unknown(Reason.MALFORMED, message, "the manager's configuration"))
