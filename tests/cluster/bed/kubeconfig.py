"""Kubeconfig files that hold all they need."""

import base64
from pathlib import Path

import yaml

from .certificates import Pair


def write(file: Path, server: str, authority: Path, user: Pair) -> Path:
    """A kubeconfig for one user of one cluster."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            _named("bed", cluster={"server": server, "certificate-authority-data": _data(authority)})
        ],
        "users": [
            _named(
                "bed",
                user={
                    "client-certificate-data": _data(user.certificate),
                    "client-key-data": _data(user.key),
                },
            )
        ],
        "contexts": [_named("bed", context={"cluster": "bed", "user": "bed"})],
        "current-context": "bed",
    }
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(content))
    return file


def _named(name: str, **content: object) -> dict[str, object]:
    return {"name": name, **content}


def _data(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
