"""Why an engine did not start: what vLLM's last words mean, which is often not what they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Final

from gpuctl.vllm import fields

Value = float | int | str


class Trouble(StrEnum):
    """Kinds of failure, from words that only report that something failed to those that name the cause."""

    GENERIC = auto()
    FAILED = auto()
    KILLED = auto()
    NOT_INSPECTED = auto()
    OUT_OF_MEMORY = auto()
    CAPTURE_OUT_OF_MEMORY = auto()
    MASKED_OUT_OF_MEMORY = auto()
    PORT_TAKEN = auto()
    NO_GPU = auto()
    WRONG_ARGUMENTS = auto()
    MPS_BUSY = auto()
    CAPTURE_REFUSED = auto()
    NO_KV_MEMORY = auto()
    KV_TOO_SMALL = auto()
    MAMBA_BLOCKS = auto()
    TAKEN_BY_OTHERS = auto()
    PROFILING_RACE = auto()
    MIG_UUID = auto()
    SERVICE_LINK = auto()
    DIED = auto()

    @property
    def telling(self) -> int:
        """How much it tells: of several in one log the most telling is the cause."""
        return list(Trouble).index(self)

    @property
    def of_start(self) -> bool:
        """Whether it can only happen while an engine starts."""
        return self not in _AT_ANY_TIME


_AT_ANY_TIME: Final = frozenset(
    {Trouble.GENERIC, Trouble.FAILED, Trouble.OUT_OF_MEMORY, Trouble.MASKED_OUT_OF_MEMORY, Trouble.DIED}
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, with the figures in its words."""

    kind: Trouble
    text: str
    values: tuple[tuple[str, Value], ...] = ()

    def get(self, name: str) -> Value | None:
        """A figure by its name, None if the words had none."""
        return dict(self.values).get(name)


_N: Final = r"(-?\d+(?:\.\d+)?)"
_EXCEPTION: Final = r"(?:[\w.]*(?:Error|Exception|Interrupt): |Exception: |raise )?"


def _no_values(_found: re.Match[str]) -> tuple[tuple[str, Value], ...]:
    return ()


def _named(
    *names: str, whole: tuple[str, ...] = ()
) -> Callable[[re.Match[str]], tuple[tuple[str, Value], ...]]:
    def values(found: re.Match[str]) -> tuple[tuple[str, Value], ...]:
        pairs = zip(names, found.groups(), strict=False)
        return tuple(
            (name, int(text) if name in whole else float(text)) for name, text in pairs if text is not None
        )

    return values


_FAILURES: Final[
    tuple[tuple[re.Pattern[str], Trouble, Callable[[re.Match[str]], tuple[tuple[str, Value], ...]]], ...]
] = tuple(
    (re.compile(_EXCEPTION + pattern), kind, values)
    for pattern, kind, values in (
        (
            (
                rf"Free memory on device(?: \S+)? \({_N}/{_N} GiB\) on startup is less than desired GPU "
                r"memory utilization "
                rf"\({_N}, {_N} GiB\)"
            ),
            Trouble.TAKEN_BY_OTHERS,
            _named("free_gib", "total_gib", "utilization", "wanted_gib"),
        ),
        (
            rf"Error in memory profiling\. Initial free memory {_N}(?: GiB)?, current free memory {_N}",
            Trouble.PROFILING_RACE,
            _named("init_free_gib", "cur_free_gib"),
        ),
        (
            (
                rf"To serve at least one request with the models?'?s? max seq len \((\d+)\), \({_N} "
                r"(?:GiB|GB) KV cache is needed, "
                rf"which is larger than the available KV cache memory \({_N} (?:GiB|GB)\)"
                r"(?:.*?estimated maximum model length is (\d+))?"
            ),
            Trouble.KV_TOO_SMALL,
            _named(
                "max_model_len",
                "kv_needed_gib",
                "kv_avail_gib",
                "fits_len",
                whole=("max_model_len", "fits_len"),
            ),
        ),
        (
            (
                r"The model's max seq len \((\d+)\) is larger than the maximum number of tokens that can "
                r"be stored in KV cache "
                r"\((\d+)\)"
            ),
            Trouble.KV_TOO_SMALL,
            _named("max_model_len", "kv_tokens", whole=("max_model_len", "kv_tokens")),
        ),
        (
            r"(?:Cannot auto-fit max_model_len|Failed to load model - not enough GPU memory)",
            Trouble.NO_KV_MEMORY,
            _no_values,
        ),
        (r"No available memory for the cache blocks", Trouble.NO_KV_MEMORY, _no_values),
        (r"max_num_seqs \(\d+\) exceeds available Mamba cache blocks", Trouble.MAMBA_BLOCKS, _no_values),
        (r"NVML_SUCCESS == r INTERNAL ASSERT FAILED", Trouble.MASKED_OUT_OF_MEMORY, _no_values),
        (
            r"(?:CUDA out of memory|HIP out of memory)\. .*?total capacity of "
            + _N
            + r" GiB of which "
            + _N
            + r" (?:MiB|GiB) is free(?:.*?with "
            + _N
            + r" [MG]iB allocated in private pools)?",
            Trouble.OUT_OF_MEMORY,
            _named("total_gib", "free", "private_pools"),
        ),
        (r"(?:CUDA out of memory|HIP out of memory)", Trouble.OUT_OF_MEMORY, _no_values),
        (r"CUDA error: out of memory", Trouble.CAPTURE_OUT_OF_MEMORY, _no_values),
        (
            r"CUDA error: operation not permitted when stream is capturing",
            Trouble.CAPTURE_REFUSED,
            _no_values,
        ),
        (r".{0,60}CUDA-capable device\(s\) is/are busy or unavailable", Trouble.MPS_BUSY, _no_values),
        (r"invalid literal for int\(\) with base 10: '(?:MIG|GPU)-", Trouble.MIG_UUID, _no_values),
        (r"VLLM_PORT '[^']*' appears to be a URI", Trouble.SERVICE_LINK, _no_values),
        (r"No platform detected, vLLM is running on UnspecifiedPlatform", Trouble.NO_GPU, _no_values),
        (
            r"(?:Failed to infer device type|No CUDA GPUs are available|Found no NVIDIA driver)",
            Trouble.NO_GPU,
            _no_values,
        ),
        (
            r"(?:Value error, )?Model architectures .* failed to be inspected",
            Trouble.NOT_INSPECTED,
            _no_values,
        ),
        (r"\[Errno 98\] .*address already in use", Trouble.PORT_TAKEN, _no_values),
        (
            r"(?:\S+: )?error: (?:unrecognized arguments|argument \S+: |ignored explicit argument)",
            Trouble.WRONG_ARGUMENTS,
            _no_values,
        ),
        (r"(?:vllm|api_server(?:\.py)?)(?: serve)?: error: ", Trouble.WRONG_ARGUMENTS, _no_values),
        (r"KeyboardInterrupt: terminated|terminated$", Trouble.KILLED, _no_values),
        (
            r"(?:EngineDeadError|.*EngineCore encountered an issue\. See stack trace)",
            Trouble.DIED,
            _no_values,
        ),
        (
            (
                r"(?:EngineCore failed to start|EngineCore hit an exception|WorkerProc hit an "
                r"exception|ray\.exceptions\.)"
            ),
            Trouble.FAILED,
            _no_values,
        ),
        (
            (
                r"(?:Engine core initialization failed|WorkerProc initialization failed|Engine process "
                r"failed "
                r"to start)"
            ),
            Trouble.GENERIC,
            _no_values,
        ),
    )
)


def failure(message: str) -> Failure | None:
    """What a message says went wrong; None if it reports no failure that is known."""
    for pattern, kind, values in _FAILURES:
        found = pattern.match(message)
        if found:
            return Failure(kind, fields.reduced(message)[:300], values(found))
    return None
