"""vLLM's arguments: which flag says what, from the command line, a --config file or a wrapper's variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

# Flags that take no value; every other one takes the next word unless it is a flag itself.
ALONE: Final = frozenset(
    {
        "enforce-eager",
        "no-enforce-eager",
        "trust-remote-code",
        "enable-prefix-caching",
        "no-enable-prefix-caching",
        "enable-chunked-prefill",
        "no-enable-chunked-prefill",
        "disable-log-requests",
        "disable-log-stats",
        "enable-lora",
        "enable-auto-tool-choice",
        "headless",
        "enable-expert-parallel",
        "disable-custom-all-reduce",
        "enable-sleep-mode",
        "async-scheduling",
        "no-async-scheduling",
        "disable-uvicorn-access-log",
        "enable-server-load-tracking",
        "enable-reasoning",
        "worker-use-ray",
        "engine-use-ray",
        "language-model-only",
    }
)
_SHORT: Final = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "q": "quantization",
    "cc": "compilation-config",
}
_FALSE: Final = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag's value (empty for one that stands alone), and where it was given."""

    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What an engine was asked for, the last word winning. Dots lead into the compilation config."""

    flags: Mapping[str, Flag] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()  # what argparse refuses

    def over(self, other: Settings) -> Settings:
        """These settings where both say something."""
        flags = {**other.flags, **self.flags}
        if "enforce-eager" in self.flags or "no-enforce-eager" in self.flags:
            opposite = "no-enforce-eager" if "enforce-eager" in self.flags else "enforce-eager"
            flags.pop(opposite, None)
        return Settings(flags, (*other.wrong, *self.wrong))

    def get(self, name: str) -> str:
        """A flag's value, or an empty text."""
        flag = self.flags.get(name)
        return flag.value if flag else ""

    def whole(self, name: str) -> int | None:
        """A flag's value as a number; `1k` and `auto` are none that decides anything here."""
        value = self.get(name)
        return int(value) if value.isdecimal() and len(value) < 12 else None  # noqa: PLR2004

    @property
    def eager(self) -> Flag | None:
        """What asks for eager mode by its own name."""
        return self.flags.get("enforce-eager")

    @property
    def no_graphs(self) -> Flag | None:
        """What switches graphs off in the compilation config, by name."""
        mode = self.flags.get("compilation-config.cudagraph_mode")
        if mode and mode.value.rpartition(".")[2].upper() in ("NONE", "0"):
            return mode
        use = self.flags.get("compilation-config.use_cudagraph")
        return use if use and use.value.lower() in _FALSE else None

    @property
    def utilization(self) -> float | None:
        """--gpu-memory-utilization."""
        try:
            return float(self.get("gpu-memory-utilization"))
        except ValueError:
            return None

    @property
    def parallel(self) -> dict[str, int]:
        """The sizes above one of tensor, pipeline and data parallelism."""
        sizes = {name: self.whole(f"{name}-parallel-size") or 1 for name in ("tensor", "pipeline", "data")}
        return {name: size for name, size in sizes.items() if size > 1}


def of_words(words: Sequence[str], origin: str = "") -> Settings:
    """Reads a command line. `origin` names where it stands; for the pod's own the flag names itself."""
    flags: dict[str, Flag] = {}
    wrong: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        following = words[place + 1] if place + 1 < len(words) else None
        place += 1
        if not word.startswith("-") or len(word) == 1 or _is_number(word):
            continue
        name, value, used = _flag(word, following)
        place += used
        if name in ("enforce-eager", "no-enforce-eager"):
            if "=" in word:
                wrong.append(word)
                continue
            flags.pop("no-enforce-eager" if name == "enforce-eager" else "enforce-eager", None)
        for key, text in _spread(name, value):
            flags[key] = Flag(text, origin or word.partition("=")[0])
    return Settings(flags, tuple(wrong))


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-\d+(\.\d+)?", word) is not None


def _flag(word: str, following: str | None) -> tuple[str, str, int]:
    """The name, the value, and how many further words that took."""
    if re.match(r"-O", word):
        return _optimization(word[2:], following)
    bare, equals, value = word.lstrip("-").partition("=")
    head, dot, rest = bare.partition(".")
    head = head.replace("_", "-")
    name = f"{_SHORT.get(head, head)}{dot}{rest.replace('-', '_')}"
    if equals:
        return name, value, 0
    if name in ALONE or following is None or (following.startswith("--") or _is_short_flag(following)):
        return name, "", 0
    return name, following, 1


def _is_short_flag(word: str) -> bool:
    return word.startswith("-") and not _is_number(word) and not word.startswith("-{") and len(word) > 1


def _optimization(rest: str, following: str | None) -> tuple[str, str, int]:
    if rest.startswith("."):
        key, _, value = rest[1:].partition("=")
        if value:
            return f"compilation-config.{key}", value, 0
        return f"compilation-config.{key}", following or "", 1 if following else 0
    if rest:
        return "O", rest.lstrip("="), 0
    return "O", following or "", 1 if following else 0


def _spread(name: str, value: str) -> Iterator[tuple[str, str]]:
    """A flag whose value is a dictionary, as one flag per key."""
    if name == "optimization-level":
        name = "O"
    if name in ("compilation-config", "O") and value.strip().startswith("{"):
        for key, part in _keys(value):
            yield f"compilation-config.{key}", part
    elif name == "compilation-config" and value.strip().isdecimal():
        yield "compilation-config.level", value.strip()
    else:
        yield name, value


def _keys(text: str) -> Iterator[tuple[str, str]]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        for key, value in re.findall(
            r"[\"']?(cudagraph_mode|use_cudagraph|level|mode)[\"']?\s*:\s*[\"']?([\w.]+)", text
        ):
            yield key, value
        return
    for key, value in tree.items() if isinstance(tree, dict) else ():
        yield key, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def of_config(tree: Any, origin: str) -> Settings:
    """Reads the content of a --config file: keys are flags without dashes."""
    if not isinstance(tree, dict):
        return Settings()
    words: list[str] = []
    for key, value in tree.items():
        flag = f"--{str(key).replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag] if value else [f"--no-{flag[2:]}"]
        elif isinstance(value, dict):
            words += [flag, json.dumps(value, default=str)]
        elif value is not None:
            words += [flag, str(value)]
    read = of_words(words)
    return Settings(
        {name: Flag(flag.value, f"{origin}: {flag.origin.lstrip('-')}") for name, flag in read.flags.items()}
    )


def of_environment(known: Mapping[str, str], image: str) -> Settings:
    """What wrappers make of their own variables: SageMaker's image, RunPod's worker, NIM."""
    flags: dict[str, Flag] = {}
    for name, value in known.items():
        flag = _wrapped(name, image)
        if flag is None:
            continue
        if flag in ("enforce-eager", "disable-cuda-graph"):
            if value.strip().lower() not in _FALSE | {""}:
                flags["enforce-eager"] = Flag("", name)
        else:
            flags.update((key, Flag(text, name)) for key, text in _spread(flag, value))
    passed = (
        of_words(known.get("NIM_PASSTHROUGH_ARGS", "").split(), "NIM_PASSTHROUGH_ARGS")
        if "nim" in image
        else Settings()
    )
    return passed.over(Settings(flags))


_RUNPOD: Final = {
    "ENFORCE_EAGER": "enforce-eager",
    "GPU_MEMORY_UTILIZATION": "gpu-memory-utilization",
    "MAX_MODEL_LEN": "max-model-len",
    "MAX_NUM_SEQS": "max-num-seqs",
    "TENSOR_PARALLEL_SIZE": "tensor-parallel-size",
    "PIPELINE_PARALLEL_SIZE": "pipeline-parallel-size",
}
_NIM: Final = {"NIM_DISABLE_CUDA_GRAPH": "disable-cuda-graph", "NIM_MAX_MODEL_LEN": "max-model-len"}


def _wrapped(name: str, image: str) -> str | None:
    if name.startswith("SM_VLLM_"):
        return name.removeprefix("SM_VLLM_").lower().replace("_", "-")
    if "runpod" in image or "worker-vllm" in image:
        return _RUNPOD.get(name)
    return _NIM.get(name)
