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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO, Final

MIB: Final = 2**20
ARCHIVES: Final = (".tar.gz", ".tgz")
READ_AS_TEXT: Final = (".json", ".yaml", ".yml", ".txt", ".err", ".log", ".pem")
_BLOCK: Final = 64 * 1024
# What machines leave beside files; macOS adds `._` twins too, with other content.
_JUNK: Final = frozenset({".DS_Store", ".gitkeep", ".gitignore", "Thumbs.db", "desktop.ini"})


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


class Meter:
    """Counts what one snapshot unpacks to: every file once, however often it is read."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._sizes: dict[object, int] = {}
        self._total = 0
        self._lock = Lock()

    def count(self, what: object, size: int, name: str) -> None:
        """Notes how much has come out of a file so far. Raises BadSnapshot beyond the limit."""
        with self._lock:
            self._total += max(0, size - self._sizes.get(what, 0))
            self._sizes[what] = max(size, self._sizes.get(what, 0))
        if self._total > self._limits.total:
            raise BadSnapshot(f"{name}: the snapshot unpacks to more than {self._limits.total // MIB} MiB")


@dataclass(frozen=True, slots=True)
class File:
    """One file of a snapshot. `path` is relative, with forward slashes; `meter` is that of the snapshot."""

    path: str
    stored: Callable[[], bytes]
    limits: Limits = LIMITS
    meter: Meter = field(default_factory=Meter, compare=False, repr=False)

    def text(self) -> bytes:
        """The content, unpacked if the name ends in .gz. Raises Damaged or BadSnapshot."""
        try:
            data = self.stored()
        except OSError as error:
            raise Damaged(error.strerror or str(error)) from error
        return _utf8(_unpacked(data, self) if self.path.lower().endswith(".gz") else data)

    def ends(self, endings: tuple[str, ...] = READ_AS_TEXT) -> bool:
        """Whether its name has one of these endings, packed or not, in capitals or not."""
        return _ends(self.path, endings)


def files(path: Path, limits: Limits = LIMITS) -> tuple[File, ...]:
    """The files of a folder, a .tar.gz or .tgz, or the one file itself, by name. Raises BadSnapshot.

    Of those with other endings than READ_AS_TEXT the name alone counts.
    """
    try:
        found = _open(path, limits)
    except OSError as error:
        raise BadSnapshot(f"{path}: {error.strerror or error}") from error
    return tuple(sorted((file for file in found if not _is_junk(file.path)), key=lambda file: file.path))


def _open(path: Path, limits: Limits) -> list[File]:
    meter = Meter(limits)
    if path.is_dir():
        return _counted(_folder(path, limits, meter), path, limits)
    if path.name.endswith(ARCHIVES):
        return _counted(_archive(path, limits, meter), path, limits)
    if not path.exists():
        raise BadSnapshot(f"{path}: there is no such file")
    if not _ends(path.name, READ_AS_TEXT):
        raise BadSnapshot(f"{path}: neither a folder nor a .tar.gz, .tgz, .json or .yaml file")
    return [_plain(path, path.name, limits, meter)]


def _ends(name: str, endings: tuple[str, ...]) -> bool:
    return name.lower().removesuffix(".gz").endswith(endings)


def _is_junk(path: str) -> bool:
    name = PurePosixPath(path).name
    return name in _JUNK or name.startswith("._")


def _counted(found: Iterator[File], path: Path, limits: Limits) -> list[File]:
    counted: list[File] = []
    for file in found:
        counted.append(file)
        if len(counted) > limits.files:
            raise BadSnapshot(f"{path}: more than {limits.files} files")
    return counted


def _folder(root: Path, limits: Limits, meter: Meter) -> Iterator[File]:
    inside = root.resolve()
    for path, name in _walk(_Place(inside, "", (inside,)), inside):
        yield _plain(path, name, limits, meter)


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder, the beginning of the names in it, the folders on the way to it, whether by a link."""

    folder: Path
    prefix: str
    way: tuple[Path, ...]
    linked: bool = False


def _walk(place: _Place, inside: Path) -> Iterator[tuple[Path, str]]:
    """The files in a place and the names by which they are found. Links are followed, in no circle."""
    for entry in _entries(place.folder):
        is_link = entry.is_symlink()
        path = _target(Path(entry.path), inside) if is_link else Path(entry.path)
        name = f"{place.prefix}{entry.name}"
        if not (path.is_dir() if is_link else entry.is_dir()):
            yield path, name
        elif path not in place.way:
            if is_link and place.linked:  # such links multiply
                raise BadSnapshot(f"{entry.path}: a link to a folder, in a folder that a link led to")
            yield from _walk(_Place(path, f"{name}/", (*place.way, path), is_link or place.linked), inside)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise BadSnapshot(f"{folder}: {error.strerror}") from error


def _target(link: Path, inside: Path) -> Path:
    """Where a link leads: to a place inside of the snapshot, or it is refused."""
    try:
        target = link.resolve()
    except (OSError, RuntimeError) as error:
        raise BadSnapshot(f"{link}: a symbolic link that leads nowhere") from error
    if not target.is_relative_to(inside):
        raise BadSnapshot(f"{link}: a symbolic link that leads out of the snapshot, to {target}")
    return target


def _plain(path: Path, name: str, limits: Limits, meter: Meter) -> File:
    """A file of a folder; one that is not there, behind a link, is damaged when it is read."""
    about = _about(path)
    if about is not None:
        if not stat.S_ISREG(about.st_mode):
            raise BadSnapshot(f"{path}: not a regular file")
        if about.st_size > limits.file:
            raise BadSnapshot(f"{path}: larger than {limits.file // MIB} MiB")
    return File(name, path.read_bytes, limits, meter)


def _about(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _archive(path: Path, limits: Limits, meter: Meter) -> Iterator[File]:
    with path.open("rb") as packed:
        stream = _Gauge(packed, path, limits, meter)
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
                yield from _members(archive, path, limits, meter)
            stream.drain()
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
            raise BadSnapshot(f"{path}: not a whole .tar.gz archive: {error}") from error


def _members(archive: tarfile.TarFile, path: Path, limits: Limits, meter: Meter) -> Iterator[File]:
    seen: set[str] = set()
    for member in archive:
        _must_be_plain(member, path, limits)
        name = str(PurePosixPath(member.name))
        if member.isdir():
            continue
        if name in seen:
            raise BadSnapshot(f"{path}: holds {name!r} twice")
        seen.add(name)
        content = archive.extractfile(member) if _ends(name, READ_AS_TEXT) else None
        data = content.read() if content else b""
        yield File(name, partial(bytes, data), limits, meter)


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

    def __init__(self, packed: IO[bytes], path: Path, limits: Limits, meter: Meter) -> None:
        self._packed = packed
        self._unpacked = gzip.GzipFile(fileobj=packed, mode="rb")
        self._path = path
        self._limits = limits
        self._meter = meter
        self._out = 0

    def read(self, size: int = -1) -> bytes:
        data = self._unpacked.read(min(size, MIB) if size >= 0 else MIB)
        self._out += len(data)
        self._meter.count(self, self._out, str(self._path))
        _must_be_dense(self._out, self._packed.tell(), str(self._path), self._limits)
        return data

    def drain(self) -> None:
        """Reads on to the end: only there gzip's checksum tells whether all of it arrived."""
        while self.read(MIB):
            pass


def _unpacked(data: bytes, file: File) -> bytes:
    out, most = bytearray(), file.limits.file
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while block := stream.read(_BLOCK):
                out += block
                if len(out) > most:
                    raise BadSnapshot(f"{file.path}: unpacks to more than {most // MIB} MiB")
                file.meter.count(file.stored, len(out), file.path)
                _must_be_dense(len(out), len(data), file.path, file.limits)
    except (EOFError, zlib.error, OSError) as error:
        raise Damaged(f"not a whole gzip file: {error}", bytes(out)) from error
    return bytes(out)


def _must_be_dense(out: int, packed: int, name: str, limits: Limits) -> None:
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
