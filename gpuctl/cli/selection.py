"""The checks a person names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuctl.cli.border import Stop

if TYPE_CHECKING:
    from gpuctl.audit.catalogue import Catalogue


def selected(names: list[str]) -> Catalogue:
    """The named checks, or all that are installed. Raises Stop, naming the nearest, for a misspelt one."""
    from gpuctl.audit.catalogue import UnknownName, catalogue

    try:
        return catalogue(names).select(names)
    except UnknownName as error:
        raise Stop(str(error)) from error
