from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.cluster.connection import Access
from tests.cluster_door.fake_api import FakeApi, fake_api

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def a_quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig, pod or proxy of the machine the tests run on."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", *PROXIES, *map(str.upper, PROXIES)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with fake_api() as server:
        yield server


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Callable[..., Access]:
    """Writes a kubeconfig of one context, `lab`."""

    def write(server: str = "http://127.0.0.1:1", user: Any = None, **cluster: Any) -> Access:
        content = {
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
            "clusters": [{"name": "lab", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "me", "user": user or {}}],
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(content))
        return Access(kubeconfig=str(path))

    return write
