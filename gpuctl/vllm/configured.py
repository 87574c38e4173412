"""The mode that arguments, environment and version lead to, before or without any log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpuctl.vllm.arguments import Settings
from gpuctl.vllm.fields import graph_mode
from gpuctl.vllm.mode import Confidence, Mode, default_variant
from gpuctl.vllm.version import Version

UNCERTAIN: Final = "the meaning of what it sets for compilation depends on the version"
_LEVELS: Final = {0: "NONE", 1: "PIECEWISE", 2: "FULL_AND_PIECEWISE", 3: "FULL_AND_PIECEWISE"}
_BREAKABLE: Final = "VLLM_USE_BREAKABLE_CUDAGRAPH"  # cuts graphs without compilation, in some versions
_WHOLE: Final = frozenset({"FULL", "FULL_DECODE_ONLY"})  # graphs that are not cut by the compilation
_NOT_CUT: Final = frozenset({"NONE", "0", "STOCK_TORCH_COMPILE", "1", "DYNAMO_TRACE_ONCE", "2"})


def configured(
    settings: Settings, environment: Mapping[str, str], version: Version | None, *, platform: str = ""
) -> Mode | None:
    """The mode, or None where this version's meaning of what is set is not certain."""
    if settings.eager:
        return _eager(f"{settings.eager.origin} asks for it")
    if platform:
        return _eager(f"graphs are not made on {platform}")
    if settings.no_graphs:
        return _no_graphs(settings, version)
    variant = _variant(settings)
    uncut = "" if variant in _WHOLE else _uncut(settings, environment)
    if uncut and (version is None or environment.get(_BREAKABLE, "0") != "0"):
        return None
    if uncut and _from(version, 0, 12, 0):
        return _eager(uncut)
    if "O" in settings.flags:
        return _by_level(settings, version)
    if not variant and "compilation-config.level" in settings.flags:
        return _by_written_level(settings.whole("compilation-config.level"), version)
    return _graphs(
        variant or default_variant(version), "the arguments leave graphs on" if variant else "the default"
    )


def asked_for_eager(settings: Settings) -> str:
    """What in the pod's own spec asks for a run without graphs, by name; empty if nothing does."""
    flag = settings.eager or settings.no_graphs
    return flag.origin if flag else ""


def _eager(why: str) -> Mode:
    return Mode(False, Confidence.INFERRED, why)


def _graphs(variant: str, why: str) -> Mode:
    return Mode(True, Confidence.INFERRED, why, variant)


def _from(version: Version | None, *wanted: int) -> bool:
    return version is not None and not version.before(*wanted)


def _no_graphs(settings: Settings, version: Version | None) -> Mode | None:
    flag = settings.no_graphs
    assert flag is not None  # noqa: S101 - asked before
    if version is not None and version.before(0, 6, 5):
        return _graphs("", "this version knows no compilation config")
    return _eager(f"{flag.origin} switches graphs off")


def _by_level(settings: Settings, version: Version | None) -> Mode | None:
    """-O meant a level of compilation up to 0.11 and means a bundle of settings since 0.12."""
    level = settings.whole("O")
    variant = _variant(settings)
    if variant:
        return _graphs(variant, "the arguments name the graphs' mode")
    if level is None:
        return _graphs(default_variant(version), "the default")
    if version is None:
        return None if level in (0, 1) else _graphs("", f"-O{level}")
    if not version.before(0, 12, 0):
        mode = _LEVELS.get(level, "FULL_AND_PIECEWISE")
        return _eager(f"-O{level}") if mode == "NONE" else _graphs(mode, f"-O{level}")
    return _by_old_level(level, version)


def _by_written_level(level: int | None, version: Version | None) -> Mode | None:
    """The level of compilation by its own name: as with -O up to 0.11; what it means since is not certain."""
    if level == 3:  # noqa: PLR2004 - the level of V1's own default
        return _graphs(default_variant(version), "compilation level 3")
    if level is None or version is None or not version.before(0, 12, 0):
        return None
    return _by_old_level(level, version)


def _by_old_level(level: int, version: Version) -> Mode | None:
    if level == 3:  # noqa: PLR2004 - the level of V1's own default
        return _graphs(default_variant(version), "-O3")
    if not version.before(0, 8, 5) and version.before(0, 10, 1):
        return _graphs("", f"this version's V1 engine takes -O{level} for -O3")
    return None


def _variant(settings: Settings) -> str:
    return graph_mode(settings.get("compilation-config.cudagraph_mode"))


def _uncut(settings: Settings, environment: Mapping[str, str]) -> str:
    """What keeps the compilation from cutting the model into pieces, which all graphs need but those of the
    whole model. Since 0.12 they are left out then; before, none of it meant that."""
    if environment.get("TORCH_COMPILE_DISABLE") == "1":
        return "TORCH_COMPILE_DISABLE switches compilation off, and the graphs with it"
    mode = settings.get("compilation-config.mode").rpartition(".")[2].upper()
    if mode in _NOT_CUT:
        return f"compilation mode {mode.lower()}"
    return "-O0" if not mode and settings.whole("O") == 0 else ""
