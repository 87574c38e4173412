"""Names of things in a cluster: kinds of objects, references to one of them, and permissions on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from gpuctl.facts.state import Unknown

T = TypeVar("T")


# A time of a view. One without a zone, as people write it into files, is taken for UTC where it is decoded:
# compared with the time of the reading it would be an error.
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object. `versions` are those gpuctl can read, the one it prefers first."""

    group: str
    versions: tuple[str, ...]
    kind: str
    plural: str
    namespaced: bool

    def __str__(self) -> str:
        return self.resource

    @property
    def resource(self) -> str:
        """`<plural>[.<group>]`, as kubectl and capture.yaml write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def api_version(self, version: str = "") -> str:
        """`[<group>/]<version>`, the preferred version unless another is named."""
        version = version or self.versions[0]
        return f"{self.group}/{version}" if self.group else version


@dataclass(frozen=True, slots=True)
class Ref:
    """One object of a cluster. `namespace` is empty for cluster-wide kinds."""

    kind: Kind
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """`Service kueue-system/kueue-webhook-service`: the way messages name objects."""
        return (
            f"{self.kind.kind} {self.namespace}/{self.name}"
            if self.namespace
            else f"{self.kind.kind} {self.name}"
        )

    @property
    def kubectl(self) -> str:
        """The arguments by which kubectl finds it: `-n kueue-system service/kueue-webhook-service`."""
        plural = self.kind.resource
        return f"-n {self.namespace} {plural}/{self.name}" if self.namespace else f"{plural}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """A permission: one verb on one resource. `resource` may be a subresource (`pods/log`)."""

    group: str
    resource: str
    verb: str
    namespaced: bool = False

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}.{self.group}" if self.group else f"{self.verb} {self.resource}"


# gc=False: what is made from JSON forms no cycles, and the cyclic collector would walk the objects of a large
# cluster again and again, which doubles the time of reading them. Subclasses inherit it; parts ask for it.
class Meta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """metadata of an object, as far as every check may use it."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: Moment | None = None
    deletion_timestamp: Moment | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Who an object belongs to."""

    kind: str
    name: str
    api_version: str = ""
    uid: str = ""
    controller: bool = False


class View(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The fields of one kind that gpuctl uses. Subclasses name their kind in `of`.

    Of a ConfigMap a snapshot stores no other keys than those that a view names in `keys`, by name or glob.
    `metadata_only`: the server is asked for nothing but metadata, as of a Secret that only has to exist.
    """

    of: ClassVar[Kind]
    metadata_only: ClassVar[bool] = False
    keys: ClassVar[tuple[str, ...]] = ()
    metadata: Meta

    @property
    def ref(self) -> Ref:
        """The reference under which this object is found."""
        return Ref(self.of, self.metadata.name, self.metadata.namespace)

    @property
    def relevant(self) -> bool:
        """Whether anything can rest on this object. One that is not is dropped as it is read: of 20,000 pods
        those that matter to a check are few."""
        return True


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one container: of its running process, or of the one before."""

    pod: Ref
    container: str
    previous: bool = False

    def __str__(self) -> str:
        """`log of container vllm in Pod serving/llm-0`: the way messages name it."""
        before = "previous log" if self.previous else "log"
        return f"{before} of container {self.container} in {self.pod}"


class Answer(msgspec.Struct, frozen=True):
    """What the server said to a dry run. `status` is the HTTP code, `body` the object or the Status.

    `lasted`: for how many seconds it has said nothing better.
    """

    at: datetime
    seconds: float
    status: int
    body: dict[str, Any]
    lasted: float = 0.0


def _at_once(_: Answer) -> float:
    return 0.0


def _unchanged(found: T, _: Unknown) -> T:
    return found


@dataclass(frozen=True)
class LogReading(Generic[T]):
    """What to make of a log. `keep` reduces it to the text that a record may hold: logs can contain what
    users wrote. Of a long log more is read until there is `enough`; `without_end` takes note of why its last
    lines could not be read."""

    parse: Callable[[str], T]
    keep: Callable[[str], str]
    enough: Callable[[T], bool] = lambda _: True
    without_end: Callable[[T, Unknown], T] = _unchanged


@dataclass(frozen=True, slots=True)
class Attempt:
    """An object whose creation is tried with dryRun=All. Equal for the same kind and namespace.

    `on_request`: only where the person asks for all dry runs. `patience`: for how many seconds an answer may
    still turn into another one, as it does while something restarts.
    """

    kind: Kind
    namespace: str
    body: Mapping[str, Any] = field(compare=False)
    on_request: bool = field(default=False, compare=False)
    patience: Callable[[Answer], float] = field(default=_at_once, compare=False, repr=False)

    def __str__(self) -> str:
        """`a ResourceFlavor`, `a Job in namespace team-a`: the way messages name it."""
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"a {self.kind.kind}{place}"
