"""Trees of `oc adm must-gather`: which kinds they hold in full, and of which namespaces.

They hold the namespaces that somebody gathered and no others, so a kind that appears in one of them says
nothing about the rest of the cluster. The paths tell, whatever folders stand around them:
`…/cluster-scoped-resources/<group>/<plural>[/<name>].yaml`, and under `…/namespaces/<namespace>/` the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpuctl.cluster.capture import Scope
from gpuctl.facts.kinds import Kind

CORE: Final = "core"
ONLY_SOME: Final = "a must-gather holds only the namespaces that were gathered"
_CLUSTER: Final = re.compile(
    r"(?:^|/)cluster-scoped-resources/([^/]+)/([^/]+?)(?:/[^/]+)?\.(?:yaml|yml|json)$"
)
_WITHIN: Final = re.compile(r"(?:^|/)namespaces/([^/]+)/([^/]+)/([^/]+?)(?:/[^/]+)?\.(?:yaml|yml|json)$")


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a tree holds in full."""

    scopes: frozenset[Scope]

    def holds(self, kind: Kind, asked: Scope) -> bool:
        """Whether it can answer; about a namespaced kind only in a namespace that was gathered."""
        wanted = Scope(kind.resource, namespace=asked.namespace if kind.namespaced else "")
        return wanted in self.scopes

    def holds_some(self, kind: Kind) -> bool:
        """Whether it holds a kind in some namespace, so that not all of it is unknown."""
        return any(scope.resource == kind.resource for scope in self.scopes)


def gathered(paths: Iterable[str]) -> Gathered | None:
    """What a tree holds by the paths of its files; None if it is no must-gather."""
    files = tuple(path.removesuffix(".gz") for path in paths)
    cluster = [match for path in files if (match := _CLUSTER.search(path))]
    within = [match for path in files if (match := _WITHIN.search(path))]
    if not cluster or not within:
        return None
    scopes = {Scope(_resource(match[1], match[2])) for match in cluster}
    scopes |= {Scope(_resource(match[2], match[3]), namespace=match[1]) for match in within}
    return Gathered(frozenset(scopes))


def _resource(group: str, plural: str) -> str:
    return plural if group == CORE else f"{plural}.{group}"
