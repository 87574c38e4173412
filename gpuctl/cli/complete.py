"""What the shell offers after a tab. Quick, and silent when something is wrong."""

from __future__ import annotations


def checks(incomplete: str) -> list[str]:
    """Names of checks."""
    from gpuctl.audit.catalogue import catalogue

    return [check.id for check in catalogue().checks if check.id.startswith(incomplete)]


def runbooks(incomplete: str) -> list[str]:
    """Names of runbooks."""
    from gpuctl.runbook.catalogue import BOOKS

    return [name for name in BOOKS if name.startswith(incomplete)]


def checks_and_runbooks(incomplete: str) -> list[str]:
    """What a role can be printed for."""
    return [*checks(incomplete), *runbooks(incomplete)]


def topics(incomplete: str) -> list[str]:
    """Everything `gpuctl explain` knows: names of checks and runbooks, and codes."""
    from gpuctl.audit.catalogue import catalogue
    from gpuctl.runbook.catalogue import BOOKS

    found = catalogue().checks
    names = [check.id for check in found] + list(BOOKS) + [code.id for check in found for code in check.codes]
    return [name for name in names if name.lower().startswith(incomplete.lower())]


def formats(incomplete: str) -> list[str]:
    """Output formats."""
    from gpuctl.cli.output import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]
