"""Opens what a person hands over as a snapshot (a folder, an archive, one file) without trusting it.

An archive is read as a stream and never unpacked to disk. Whatever could reach outside of it or is larger
than the stated limits refuses the whole; text that is merely broken is a matter of its one file.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Final

MIB: Final = 2**20
ARCHIVES: Final = (".tar.gz", ".tgz")
READ_AS_TEXT: Final = (".json", ".yaml", ".yml", ".txt", ".err", ".log", ".pem")
_BLOCK: Final = 64 * 1024


class BadSnapshot(Exception):
    """A snapshot that is refused; the message names the file and the reason."""


class Damaged(Exception):
    """One file whose text can't be had. `start` is what could be read of it."""

    def __init__(self, reason: str, start: bytes = b"") -> None:
        super().__init__(reason)
        self.start = start


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes. `ratio` is unpacked to packed, looked at once `ratio_from` bytes are unpacked."""

    total: int = 1024 * MIB
    file: int = 512 * MIB
    files: int = 200_000
    ratio: int = 300
    ratio_from: int = 64 * MIB


LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class File:
    """One file of a snapshot. `path` is relative, with forward slashes."""

    path: str
    stored: Callable[[], bytes]
    limits: Limits = LIMITS

    def text(self) -> bytes:
        """The content, unpacked if the name ends in .gz. Raises Damaged or BadSnapshot."""
        try:
            data = self.stored()
        except OSError as error:
            raise Damaged(error.strerror or str(error)) from error
        return _utf8(_unpacked(data, self.path, self.limits) if self.path.endswith(".gz") else data)


def files(path: Path, limits: Limits = LIMITS) -> tuple[File, ...]:
    """The files of a folder, a .tar.gz or .tgz, or the one file itself, by name. Raises BadSnapshot."""
    try:
        found = _open(path, limits)
    except OSError as error:
        raise BadSnapshot(f"{path}: {error.strerror or error}") from error
    return tuple(sorted((file for file in found if _meant(file.path)), key=lambda file: file.path))


def _open(path: Path, limits: Limits) -> list[File]:
    if path.is_dir():
        return _counted(_folder(path, limits), path, limits)
    if path.name.endswith(ARCHIVES):
        return _counted(_archive(path, limits), path, limits)
    if not path.exists():
        raise BadSnapshot(f"{path}: there is no such file")
    if not _meant(path.name):
        raise BadSnapshot(f"{path}: neither a folder nor a .tar.gz, .tgz, .json or .yaml file")
    return [_plain(path, path.name, limits)]


def _meant(name: str) -> bool:
    """Whether a file may hold what a snapshot holds; macOS adds `._` twins with other content."""
    return name.removesuffix(".gz").endswith(READ_AS_TEXT) and not PurePosixPath(name).name.startswith("._")


def _counted(found: Iterator[File], path: Path, limits: Limits) -> list[File]:
    counted: list[File] = []
    for file in found:
        counted.append(file)
        if len(counted) > limits.files:
            raise BadSnapshot(f"{path}: more than {limits.files} files")
    return counted


def _folder(root: Path, limits: Limits) -> Iterator[File]:
    inside = root.resolve()
    for folder, folders, names in os.walk(inside, onerror=_refuse):
        folders.sort()
        for name in (*folders, *names):
            path = Path(folder, name)
            if path.is_symlink():
                _must_stay(path, inside)
            elif name in names:
                yield _plain(path, path.relative_to(inside).as_posix(), limits)


def _refuse(error: OSError) -> None:
    raise BadSnapshot(f"{error.filename}: {error.strerror}") from error


def _must_stay(link: Path, inside: Path) -> None:
    """A link to a place inside is passed over, for that is read anyway; one that leads out refuses."""
    try:
        target = link.resolve()
    except (OSError, RuntimeError) as error:
        raise BadSnapshot(f"{link}: a symbolic link that leads nowhere") from error
    if not target.is_relative_to(inside):
        raise BadSnapshot(f"{link}: a symbolic link that leads out of the snapshot, to {target}")


def _plain(path: Path, name: str, limits: Limits) -> File:
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise BadSnapshot(f"{path}: not a regular file")
    if about.st_size > limits.file:
        raise BadSnapshot(f"{path}: larger than {limits.file // MIB} MiB")
    return File(name, path.read_bytes, limits)


def _archive(path: Path, limits: Limits) -> Iterator[File]:
    with path.open("rb") as packed:
        stream = _Gauge(packed, path, limits)
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
                yield from _members(archive, path, limits)
            stream.drain()
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
            raise BadSnapshot(f"{path}: not a whole .tar.gz archive: {error}") from error


def _members(archive: tarfile.TarFile, path: Path, limits: Limits) -> Iterator[File]:
    seen: set[str] = set()
    for member in archive:
        _must_be_plain(member, path, limits)
        name = str(PurePosixPath(member.name))
        if member.isdir():
            continue
        if name in seen:
            raise BadSnapshot(f"{path}: holds {name!r} twice")
        seen.add(name)
        content = archive.extractfile(member) if _meant(name) else None
        data = content.read() if content else b""
        yield File(name, partial(bytes, data), limits)


def _must_be_plain(member: tarfile.TarInfo, path: Path, limits: Limits) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\\" in member.name or "\0" in member.name:
        raise BadSnapshot(f"{path}: the member {member.name!r} leads out of the archive")
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise BadSnapshot(f"{path}: the member {member.name!r} is a {_sort(member)}, not a file")
    if member.size > limits.file:
        raise BadSnapshot(f"{path}: the member {member.name!r} is larger than {limits.file // MIB} MiB")


def _sort(member: tarfile.TarInfo) -> str:
    if member.issym():
        return "symbolic link"
    if member.islnk():
        return "hard link"
    return "sparse file" if member.issparse() else "device or pipe"


class _Gauge:
    """Unpacks gzip and watches how much comes out."""

    def __init__(self, packed: IO[bytes], path: Path, limits: Limits) -> None:
        self._packed = packed
        self._unpacked = gzip.GzipFile(fileobj=packed, mode="rb")
        self._path = path
        self._limits = limits
        self._out = 0

    def read(self, size: int = -1) -> bytes:
        data = self._unpacked.read(min(size, MIB) if size >= 0 else MIB)
        self._out += len(data)
        _within(self._out, self._packed.tell(), str(self._path), self._limits.total, self._limits)
        return data

    def drain(self) -> None:
        """Reads on to the end: only there gzip's checksum tells whether all of it arrived."""
        while self.read(MIB):
            pass


def _unpacked(data: bytes, name: str, limits: Limits) -> bytes:
    out = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while block := stream.read(_BLOCK):
                out += block
                _within(len(out), len(data), name, limits.file, limits)
    except (EOFError, zlib.error, OSError) as error:
        raise Damaged(f"not a whole gzip file: {error}", bytes(out)) from error
    return bytes(out)


def _within(out: int, packed: int, name: str, most: int, limits: Limits) -> None:
    if out > most:
        raise BadSnapshot(f"{name}: unpacks to more than {most // MIB} MiB")
    if out > limits.ratio_from and out > packed * limits.ratio:
        raise BadSnapshot(f"{name}: unpacks to more than {limits.ratio} times its size")


def _utf8(data: bytes) -> bytes:
    """Windows' PowerShell writes UTF-16 when output is redirected, and editors there a byte order mark."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16").encode()
        except UnicodeError as error:
            raise Damaged(f"not whole UTF-16: {error}") from error
    return data.removeprefix(b"\xef\xbb\xbf")
