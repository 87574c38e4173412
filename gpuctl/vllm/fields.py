"""The fields of vLLM's configuration and argument lines. They are no language one can parse whole: values can
be Python objects of any kind, so each field is found by itself, and nothing else is kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_EAGER: Final = re.compile(r"[\s({,'\"]enforce_eager'?\"?\s*[=:]\s*(True|False|true|false)(?=[,)}\s])")
_MODE_REPR: Final = re.compile(r"'cudagraph_mode': <CUDAGraphMode\.([A-Z_]+)")
_MODE_JSON: Final = re.compile(
    r"[\"']cudagraph_mode[\"']:\s*(\d+|\[\d+,\s*\d+\]|\"[A-Za-z_]+\"|'[A-Za-z_]+')"
)
_LEVEL: Final = re.compile(r"[\"']level[\"']:\s*(\d)")
_COMPILATION: Final = re.compile(r"'mode': <CompilationMode\.([A-Z_]+): (\d)")
_USE_GRAPHS: Final = re.compile(r"\"use_cudagraph\":\s*(true|false)")
_NUMBERS: Final = {
    "0": "NONE",
    "1": "PIECEWISE",
    "2": "FULL",
    "[2,0]": "FULL_DECODE_ONLY",
    "[2,1]": "FULL_AND_PIECEWISE",
}
_KEPT: Final = (
    "model",
    "model_tag",
    "max_seq_len",
    "max_model_len",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "device_config",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "gpu_memory_utilization",
    "enforce_eager",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_memory_bytes",
    "optimization_level",
    "cudagraph_capture_sizes",
    "max_cudagraph_capture_size",
)
_FIELD: Final = re.compile(
    rf"[\s({{,](['\"]?)({'|'.join(_KEPT)})\1\s*([=:])\s*('[^']*'|\"[^\"]*\"|\[[^\]]*\]|[^\s,)}}]+)"
)
_CONFIG_HEAD: Final = re.compile(r"(Initializing an? (?:V[01] )?LLM engine \([^)]*\) with config: )(.*)")
_ARGS_HEAD: Final = re.compile(r"((?:non-default )?args: )(\{|Namespace\()(.*)")
_SHAPES: Final = r"\bhf_[A-Za-z0-9]{8,}|\bsk-[\w-]{8,}|(?<=://)[^\s/@'\"]+(?=@)"
# Behind a flag, in a usage error of argparse: `--api-key abc`.
_FLAGGED: Final = re.compile(
    r"(--[\w-]*(?:key|token(?!s)|secret|passw\w*)[\w-]*[=\s]+)(?!-)\S+", re.IGNORECASE
)
_SHAPED: Final = re.compile(_SHAPES)
_SECRET: Final = re.compile(
    r"((?:api[-_]?key|token(?!s)|secret|passw\w*|authorization|credential)\w*['\"]?\s*[=:]\s*)(?:\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[^\s,)}]+)"
    rf"|{_SHAPES}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Told:
    """What such a line says of an engine. `complete`: it names defaults too, so what is absent is unset."""

    eager: bool | None = None
    graph_mode: str = ""
    level: int | None = None
    use_graphs: bool | None = None
    device: str = ""
    model: str = ""
    utilization: float | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    max_model_len: int | None = None
    complete: bool = False


def configuration(text: str) -> Told:
    """The `with config:` part of the engine's first line."""
    return Told(
        eager=_eager(text),
        graph_mode=_graph_mode(text),
        level=_level(text),
        use_graphs=_boolean(_USE_GRAPHS.search(text)),
        device=_text(text, "device_config"),
        model=_text(text, "model"),
        tensor_parallel=_whole(text, "tensor_parallel_size"),
        pipeline_parallel=_whole(text, "pipeline_parallel_size"),
        data_parallel=_whole(text, "data_parallel_size"),
        max_model_len=_whole(text, "max_seq_len"),
    )


def arguments(text: str) -> Told:
    """The `args: Namespace(…)` or `non-default args: {…}` line of the API server."""
    complete = text.startswith("Namespace(")
    eager = _eager(text)
    return Told(
        eager=eager if complete or eager is not None else False,
        graph_mode=_graph_mode(text),
        model=_text(text, "model") or _text(text, "model_tag"),
        utilization=_float(text, "gpu_memory_utilization"),
        tensor_parallel=_whole(text, "tensor_parallel_size"),
        pipeline_parallel=_whole(text, "pipeline_parallel_size"),
        data_parallel=_whole(text, "data_parallel_size"),
        max_model_len=_whole(text, "max_model_len"),
        complete=complete,
    )


def reduced(message: str) -> str:
    """A message with no more than the known fields of a configuration, and without keys."""
    config = _CONFIG_HEAD.match(message)
    if config:
        return f"{config[1]}{', '.join(_kept_fields(config[2]))})"
    args = _ARGS_HEAD.match(message)
    if args:
        return f"{args[1]}{args[2]}{', '.join(_kept_fields(args[3]))}{'}' if args[2] == '{' else ')'}"
    masked = _FLAGGED.sub(r"\1<masked>", message)
    return _SECRET.sub(lambda found: f"{found[1] or ''}<masked>", masked)[:2000]


def _kept_fields(text: str) -> list[str]:
    """Fields as they stand, and of the compilation config what decides about graphs."""
    found = [
        f"{each[1]}{each[2]}{each[1]}{each[3]}{' ' if each[3] == ':' else ''}{each[4]}"
        for each in _FIELD.finditer(f" {text}")
    ]
    mode, level, compiled = _graph_mode(text), _LEVEL.search(text), _COMPILATION.search(text)
    if mode:
        found.append(f"compilation_config={{'cudagraph_mode': <CUDAGraphMode.{mode}>}}")
    if compiled:
        found.append(compiled[0] + ">")
    if level:
        found.append(level[0])
    use_graphs = _USE_GRAPHS.search(text)
    return [_SHAPED.sub("<masked>", each) for each in (*found, *([use_graphs[0]] if use_graphs else []))]


def _eager(text: str) -> bool | None:
    return _boolean(_EAGER.search(f" {text}"))


def _boolean(found: re.Match[str] | None) -> bool | None:
    return found[1].lower() == "true" if found else None


def _graph_mode(text: str) -> str:
    written = _MODE_REPR.search(text)
    if written:
        return written[1]
    number = _MODE_JSON.search(text)
    return graph_mode(number[1].strip("\"'")) if number else ""


def graph_mode(value: object) -> str:
    """The name of a graph mode, of which JSON may hold the name or the number; empty if it is none."""
    text = "" if value is None else re.sub(r"\s|^CUDAGraphMode\.", "", str(value)).upper()
    return _NUMBERS.get(text, text if text.replace("_", "").isalpha() else "")


def _level(text: str) -> int | None:
    found = _COMPILATION.search(text)
    if found:
        return int(found[2])
    level = _LEVEL.search(text)
    return int(level[1]) if level else None


def _value(text: str, name: str) -> str:
    found = re.search(rf"[\s({{,'\"]{name}['\"]?\s*[=:]\s*('[^']*'|\"[^\"]*\"|[^\s,)}}]+)", f" {text}")
    return found[1].strip("'\"") if found else ""


def _text(text: str, name: str) -> str:
    value = _value(text, name)
    return "" if value in ("None", "null") else value


def _whole(text: str, name: str) -> int | None:
    value = _value(text, name)
    return int(value) if value.isdecimal() and len(value) < 12 else None  # noqa: PLR2004 - beyond it is rubbish


def _float(text: str, name: str) -> float | None:
    try:
        return float(_value(text, name))
    except ValueError:
        return None
