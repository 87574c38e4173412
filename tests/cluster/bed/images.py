"""Container images made by hand, since none can be pulled: a layer, its configuration, a manifest."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .packages import BUSYBOX as BUSYBOX_BINARY

BUSYBOX = "localhost/busybox:1"
PAUSE = "localhost/pause:1"
KUEUE = "localhost/kueue:bed"
NOT_ROOT = "65532:65532"  # Kueue's manifests insist on a number other than root's
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """An image from scratch: the files and links in it, and what runs."""

    name: str
    files: Mapping[str, Path]
    links: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = ""

    def write(self, archive: Path) -> Path:
        """As `docker save` would write it, for `ctr images import`."""
        layer = archive.with_suffix(".layer")
        self._write_layer(layer)
        config = self._config(layer)
        manifest = [{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]
        with tarfile.open(archive, "w") as tar:
            tar.add(layer, "layer.tar")
            _add(tar, "config.json", json.dumps(config).encode())
            _add(tar, "manifest.json", json.dumps(manifest).encode())
        layer.unlink()
        return archive

    def _write_layer(self, layer: Path) -> None:
        with tarfile.open(layer, "w") as tar:
            for name in ("tmp", "bin"):
                _add_folder(tar, name)
            for name, source in self.files.items():
                info = tarfile.TarInfo(name)
                info.size, info.mode = source.stat().st_size, 0o755
                with source.open("rb") as content:
                    tar.addfile(info, content)
            for name, target in self.links.items():
                info = tarfile.TarInfo(name)
                info.type, info.linkname = tarfile.SYMTYPE, target
                tar.addfile(info)

    def _config(self, layer: Path) -> dict[str, object]:
        with layer.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        runs = {"Entrypoint": [*self.entrypoint], "Cmd": [*self.command], "User": self.user, "Env": [PATH]}
        return {
            "architecture": _architecture(),
            "os": "linux",
            "config": runs,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }


def images(kueue: Path) -> tuple[Image, ...]:
    """The images of the bed: a shell, the sandbox of every pod, and Kueue's manager."""
    shell = {"bin/busybox": BUSYBOX_BINARY}
    return (
        Image(BUSYBOX, shell, _applets(), command=["sh"]),
        Image(PAUSE, shell, entrypoint=["/bin/busybox", "sleep", "2147483647"]),
        Image(KUEUE, {"manager": kueue}, entrypoint=["/manager"], user=NOT_ROOT),
    )


def _applets() -> dict[str, str]:
    done = subprocess.run((str(BUSYBOX_BINARY), "--list"), stdout=subprocess.PIPE, text=True, check=True)
    return {f"bin/{name}": "busybox" for name in done.stdout.split() if name != "busybox"}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    tar.addfile(info)


def _architecture() -> str:
    done = subprocess.run(("dpkg", "--print-architecture"), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()
