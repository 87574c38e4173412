"""Which cluster, as whom: kubeconfig, contexts and credentials as kubectl and its Python client know them.

The client reads and authenticates; this file tells it what to read and puts its failures into words, because
it goes on without credentials where a user is missing or a plugin fails, and the person would see a 401.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuctl.cluster.errors import one_line

IN_CLUSTER = "in-cluster"
_BROKEN = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Access:
    """kubectl's global flags. `request_timeout` is in seconds and bounds each single request."""

    kubeconfig: str | None = None
    context: str | None = None
    cluster: str | None = None
    user: str | None = None
    server: str | None = None
    namespace: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    request_timeout: float | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The kubeconfig files that are looked for, in kubectl's order of precedence."""
        named = self.kubeconfig or os.environ.get("KUBECONFIG", "")
        parts = [named] if self.kubeconfig else named.split(os.pathsep)
        return tuple(Path(part).expanduser() for part in parts if part) or (Path.home() / ".kube" / "config",)


class CannotConnect(Exception):
    """No connection can even be tried. The message names the kubeconfig and the context that were meant."""

    def __init__(self, access: Access, context: str | None, why: str) -> None:
        tried = [f"kubeconfig {os.pathsep.join(map(str, access.paths))}"]
        if context:
            tried.append(f"context {context}")
        super().__init__(f"cannot connect with {', '.join(tried)}: {one_line(why)}")


class _Wrong(Exception):
    """Something in the kubeconfig that the client would pass over."""


@dataclass(frozen=True, slots=True)
class Login:
    """A context's name and the client's configuration of it, credentials included."""

    context: str
    configuration: Any


def log_in(access: Access, scratch: str) -> Login:
    """Reads the kubeconfig and obtains credentials; a plugin may ask the person. `scratch` is a folder for
    certificates that stand in the kubeconfig. Raises CannotConnect."""
    from kubernetes.config import ConfigException
    from yaml import YAMLError

    context = access.context
    try:
        if not any(path.is_file() for path in access.paths):
            return _without_file(access)
        merged, persist = _merged(access)
        context = context or _current_context(persist.config_files)
        return _from_file(access, context, merged, persist, scratch)
    except (_Wrong, ConfigException, YAMLError) as error:
        raise CannotConnect(access, context, str(error)) from error
    except _BROKEN as error:
        raise CannotConnect(access, context, f"not a usable kubeconfig: {_described(error)}") from error


class _Ear(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


@contextmanager
def complaints() -> Iterator[list[str]]:
    """What the client logs as errors meanwhile: it does not raise when a credentials plugin fails."""
    ear = _Ear(logging.ERROR)
    logging.getLogger().addHandler(ear)
    try:
        yield ear.heard
    finally:
        logging.getLogger().removeHandler(ear)


def _without_file(access: Access) -> Login:
    from kubernetes.client import Configuration
    from kubernetes.config import load_incluster_config

    configuration = Configuration()
    if access.server:
        configuration.host = _address(access.server)
        return Login("", configuration)
    if access.kubeconfig or "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise _Wrong("no such file, and this is not a pod of a cluster")
    load_incluster_config(configuration)
    return Login(IN_CLUSTER, configuration)


def _merged(access: Access) -> tuple[Any, Any]:
    from kubernetes.config.kube_config import KubeConfigMerger

    merger = KubeConfigMerger(os.pathsep.join(str(path) for path in access.paths))
    return merger.config, merger


def _current_context(files: Mapping[str, Mapping[str, Any]]) -> str:
    """The first file that names one wins, as with kubectl; the client's merger takes the last."""
    named = (str(content.get("current-context") or "") for content in files.values())
    return next((name for name in named if name), "")


def _from_file(access: Access, context: str, merged: Any, merger: Any, scratch: str) -> Login:
    from kubernetes.client import Configuration
    from kubernetes.config.kube_config import KubeConfigLoader

    user = _choose(access, context, merged)
    loader = KubeConfigLoader(
        merged,
        active_context=context,
        config_base_path=None,  # paths in a kubeconfig are relative to the file they stand in
        config_persister=merger.save_changes,  # a refreshed OIDC token invalidates the stored one
        temp_file_path=scratch,
    )
    configuration = Configuration()
    with complaints() as heard:
        loader.load_and_set(configuration)
    if heard:
        raise _Wrong(_plugin_failure(user, heard))
    return Login(context, configuration)


def _choose(access: Access, context: str, merged: Any) -> Mapping[str, Any]:
    """Leaves in the kubeconfig the one context and cluster that are meant, flags put in; returns the user."""
    if not context and not access.cluster:
        raise _Wrong(f"no current context; {_names(merged, 'contexts')}")
    meant = dict(_entry(merged, "contexts", context).value["context"]) if context else {}
    meant |= {key: name for key, name in (("cluster", access.cluster), ("user", access.user)) if name}
    cluster = _entry(merged, "clusters", meant.get("cluster", ""))
    content = dict(cluster.value["cluster"])
    if access.server:
        content["server"] = access.server
    _address(content.get("server") or "")
    user = _entry(merged, "users", meant["user"]).value["user"] if meant.get("user") else None
    node = type(merged)
    merged.value["contexts"] = [{"name": context, "context": meant}]
    merged.value["clusters"] = [
        node(cluster.name, {"name": meant["cluster"], "cluster": content}, cluster.path)
    ]
    return user or {}


def _entry(merged: Any, section: str, name: str) -> Any:
    for entry in merged.value[section]:
        if entry["name"] == name:
            return entry
    raise _Wrong(f"no {section[:-1]} named {name!r}; {_names(merged, section)}")


def _names(merged: Any, section: str) -> str:
    names = [str(entry["name"]) for entry in merged.value[section]]
    return f"its {section}: {', '.join(names)}" if names else f"it has no {section}"


def _address(server: str) -> str:
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _Wrong(f"{server!r} is not the address of an API server")
    return server.rstrip("/")


def _plugin_failure(user: Mapping[str, Any], heard: list[str]) -> str:
    plugin = user.get("exec") or {}
    said = " ".join(heard)
    if not plugin:
        return f"no credentials: {said}"
    hint = plugin.get("installHint", "")
    return f"the credentials plugin {plugin.get('command')} failed: {said} {hint}"


def _described(error: BaseException) -> str:
    if isinstance(error, OSError | ValueError):
        return str(error)
    return f"{type(error).__name__}: {error}"
