"""Takes secrets out of objects before they are stored or shown. Pure functions over the JSON of objects.

An allow-list: the value of an environment variable, the text of a ConfigMap stay only where they are named.
Containers are found by structure, so that a pod template is masked wherever it hides: in a Deployment, a Job,
a Workload's pod sets, a custom resource nobody here has heard of. What is taken out reads `<masked>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

from gpuctl.vllm.environment import READ_BESIDE, READ_PREFIXES

MASKED: Final = "<masked>"
_LAST_APPLIED: Final = ("/last-applied-configuration", "/last-applied", "kapp.k14s.io/original")

# Environment variables whose values tell how an engine or an operand is set up, by who reads them.
ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "NVIDIA container toolkit and CUDA": frozenset(
        {
            "CUDA_DEVICE_ORDER",
            "CUDA_VISIBLE_DEVICES",
            "NVIDIA_DISABLE_REQUIRE",
            "NVIDIA_DRIVER_CAPABILITIES",
            "NVIDIA_MIG_CONFIG_DEVICES",
            "NVIDIA_MIG_MONITOR_DEVICES",
            "NVIDIA_VISIBLE_DEVICES",
        }
    ),
    "GPU operator: device plugin, GPU feature discovery, MIG manager, DCGM exporter": frozenset(
        {
            "CONFIG_FILE",
            "CONFIG_FILE_SRCDIR",
            "CONFIG_FILE_DST",
            "DEFAULT_CONFIG",
            "DEFAULT_GPU_CLIENTS_CONFIG",
            "DEVICE_ID_STRATEGY",
            "DEVICE_LIST_STRATEGY",
            "DRIVER_ROOT",
            "DRIVER_ROOT_CTR_PATH",
            "FAIL_ON_INIT_ERROR",
            "FALLBACK_STRATEGIES",
            "GPU_CLIENTS_FILE",
            "HOST_ROOT_MOUNT",
            "MIG_PARTED_CONFIG_FILE",
            "MIG_STRATEGY",
            "MPS_ROOT",
            "NODE_LABEL",
            "NVIDIA_DEV_ROOT",
            "NVIDIA_DRIVER_ROOT",
            "PASS_DEVICE_SPECS",
            "WITH_REBOOT",
            "WITH_SHUTDOWN_HOST_GPU_CLIENTS",
        }
    ),
    **READ_BESIDE,
}
_ALLOWED_NAMES: Final = frozenset().union(*ALLOWED.values())

# Words that make a name key-like wherever they stand in it, and those that do at its end. Not `tokens`: that
# mostly counts them (--max-num-batched-tokens).
_ANYWHERE: Final = (
    r"(?:api[-_]?key|access[-_]?key|private[-_]?key|secret|passw(?:or)?d|passphrase|credential|authorization"
    r"|(?:api|auth|access|bearer|hf|refresh)[-_]?tokens)"
)
_AT_END: Final = rf"(?:(?:{_ANYWHERE}|key|pwd|auth)s?|token)"
_KEY_LIKE: Final = re.compile(rf"{_ANYWHERE}|(?:^|_)key(?:_|$)|{_AT_END}$", re.IGNORECASE)

# The same of fields in structured text, where `key` alone mostly is that of a label.
_FIELD: Final = (
    r"(?:passw(?:or)?d|passphrase|token|(?:api|access|secret|private|signing|encryption)[-_]?keys?"
    r"|secret|credentials?)"
)
_SECRET_FIELD: Final = re.compile(rf"{_FIELD}$", re.IGNORECASE)

_REFERENCE: Final = re.compile(r"\$\((\w+)\)")
_QUOTED_OR_WORD: Final = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"';|&]+)"""
_SHELL_REFERENCE: Final = r"""["']?\$(?:\(\w+\)|\{\w+\}|\w+)["']?"""
_VALUE: Final = rf"(?!{_SHELL_REFERENCE}(?:[\s;|&]|$)){_QUOTED_OR_WORD}+"

# What is secret by its own shape, wherever it stands.
_SHAPES: Final = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bsk-[\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\bxox[abeoprs]-[\w-]{10,}|\bnvapi-[\w-]{16,}|\bA[KS]IA[0-9A-Z]{16}\b"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|LS0tLS1CRUdJTi(?:BQUklWQVRF|BSU0EgUFJJVkFUR|BFQyBQUklWQVRF|BFTkNSWVBURUQgUFJJVkFUR|BPUEVOU1NIIFBSSVZBVE)"
    r"[A-Za-z0-9+/=]*",
    re.DOTALL,
)
_USER_INFO: Final = re.compile(r"(?<=://)[^\s/?#\"'<>]+(?=@)")
_BEARER: Final = re.compile(r"(\bbearer\s+)(?!\$)(?=[\w.~+/-]*[\d._~+/-])[\w.~+/=-]{8,}", re.IGNORECASE)
_SUSPECT: Final = re.compile(
    r"://|[Bb]earer|BEARER|hf_|sk-|gh[pousr]_|github_pat_|glpat-|xox|nvapi-|A[KS]IA|eyJ|PRIVATE KEY|LS0tLS1CR"
)
_SHORTEST: Final = len("://a:b@c")  # characters of a text that can hold a secret by its looks

# What is secret by the name before it, in text that a shell or a person reads.
_HEADER: Final = re.compile(
    rf"(\b[\w-]*(?:{_ANYWHERE}|x-[\w-]*token)\s*:\s*)(?!\s|{MASKED})(?:(?:basic|bearer)\s+)?(?!\$)[^\s\"',}}]+",
    re.IGNORECASE,
)
_JSON_FIELD: Final = re.compile(
    rf"""(["'][\w.-]*{_FIELD}["']\s*:\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*')""", re.IGNORECASE
)
_YAML_FIELD: Final = re.compile(
    rf"^(\s*(?:-\s+)?[\w.-]*{_FIELD}:[ \t]+)(?![|>{{\[]|{MASKED})\S.*$", re.IGNORECASE | re.MULTILINE
)
_YAML_BLOCK: Final = re.compile(
    rf"^([ \t]*)((?:-[ ]+)?[\w.-]*{_FIELD}:[ \t]+)[|>][^\n]*(?:\n\1[ \t]+[^\n]*|\n[ \t]*(?=\n))+",
    re.IGNORECASE | re.MULTILINE,
)
_ASSIGNED: Final = re.compile(rf"(\b\w*{_AT_END}=){_VALUE}", re.IGNORECASE)
_GAP: Final = r"(?:\s*=\s*|(?:\s|\\\n)+)"
_FLAG: Final = re.compile(rf"((?<![\w-])--?[\w.-]*?{_AT_END}{_GAP})(?![-\\]){_VALUE}", re.IGNORECASE)
_API_KEYS: Final = re.compile(
    rf"((?<![\w-])--?api[-_]?keys?)((?:{_GAP}(?![-\\|&;>]){_QUOTED_OR_WORD})+)", re.IGNORECASE
)
_ONE_KEY: Final = re.compile(rf"(?<=[\s=]){_QUOTED_OR_WORD}")
_USER: Final = re.compile(r"((?<![\w-])(?:-u|--user|--proxy-user)(?:=|\s+))[^\s:$-][^\s:]*:\S+")

_KEY_FLAG: Final = re.compile(rf"--?[\w.-]*{_AT_END}", re.IGNORECASE)
_API_KEY_FLAG: Final = re.compile(r"--?api[-_]?keys?", re.IGNORECASE)
_USER_FLAGS: Final = ("-u", "--user", "--proxy-user")
_ENV_FIELD: Final = re.compile(r"env(?:s|vars?|ironment)?$", re.IGNORECASE)


def masked(item: Mapping[str, Any], keys: Collection[str] = ()) -> dict[str, Any] | None:
    """The object without its secrets, or None for a Secret. Of a ConfigMap's data `keys` (globs) stay."""
    kind = item.get("kind")
    if kind in ("Secret", "SecretList") and item.get("apiVersion") == "v1":
        return None
    if kind == "ConfigMap" and item.get("apiVersion") == "v1":
        item = _config_map(item, keys)
    return _mapping(item)


def masked_text(text: str) -> str:
    """Text of a file, a message or a command line without the secrets that can be told by their looks."""
    if len(text) < _SHORTEST or not _SUSPECT.search(text):
        return text
    text = _SHAPES.sub(MASKED, text)
    text = _USER_INFO.sub(MASKED, text)
    return _BEARER.sub(rf"\1{MASKED}", text)


def masked_shell(text: str) -> str:
    """A command line without the values of key-like flags, variables, headers and JSON fields."""
    text = _API_KEYS.sub(_api_keys, masked_text(text))
    for pattern in (_JSON_FIELD, _HEADER, _FLAG, _ASSIGNED, _USER):
        text = pattern.sub(_value_masked, text)
    return text


def key_like(name: str) -> bool:
    """Whether a name promises a secret: *KEY, *TOKEN, *SECRET, *PASSWORD and their kin."""
    return _KEY_LIKE.search(name) is not None


def _value_masked(found: re.Match[str]) -> str:
    """Keeps the quotes around a value, so that what was JSON still is."""
    value = found[0][len(found[1]) :]
    quote = value[0] if value[:1] in ("'", '"') else ""
    return f"{found[1]}{quote}{MASKED}{quote}"


def _api_keys(found: re.Match[str]) -> str:
    """vLLM takes several values behind one --api-key. A reference to a variable holds no secret."""
    return found[1] + _ONE_KEY.sub(
        lambda key: key[0] if re.fullmatch(_SHELL_REFERENCE, key[0]) else MASKED, found[2]
    )


def _config_map(item: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    kept = dict(item)
    kept.pop("binaryData", None)
    if isinstance(item.get("data"), Mapping):
        kept["data"] = {key: _configuration(text) for key, text in item["data"].items() if _named(key, keys)}
    return kept


def _named(key: str, keys: Collection[str]) -> bool:
    """Whether a view names this key; it may do so by a glob."""
    return any(fnmatchcase(key, each) for each in keys)


def _configuration(text: object) -> object:
    """A configuration file without the values of its secret fields."""
    if not isinstance(text, str):
        return MASKED
    text = _YAML_BLOCK.sub(rf"\1\2{MASKED}", text)
    return _YAML_FIELD.sub(_value_masked, masked_shell(text))


def _mapping(tree: Mapping[str, Any]) -> dict[str, Any]:
    references = frozenset(_references(tree))
    hidden = ("data", "stringData") if tree.get("kind") == "Secret" else ()
    return {key: MASKED if key in hidden else _field(key, part, references) for key, part in tree.items()}


def _references(container: Mapping[str, Any]) -> Iterator[str]:
    """The variables that a container's command line names as $(X)."""
    for key in ("command", "args"):
        for word in _strings(container.get(key)):
            yield from _REFERENCE.findall(word)


@lru_cache(maxsize=4096)  # the same few keys come with every object
def _names_a_secret(key: str) -> bool:
    return _SECRET_FIELD.search(key) is not None


@lru_cache(maxsize=4096)
def _names_an_environment(key: str) -> bool:
    return _ENV_FIELD.search(key) is not None


def _field(key: str, part: Any, references: Collection[str]) -> Any:
    if _names_an_environment(key) and isinstance(part, list):
        return [_variable(each, references) for each in part]
    if _ENV_FIELD.fullmatch(key) and isinstance(part, Mapping):
        return {name: _environment_value(name, value, references) for name, value in part.items()}
    if key in ("command", "args") or key.endswith("Args"):
        return _arguments(part)
    if key == "annotations" and isinstance(part, Mapping):
        return _annotations(part)
    if key == "managedFields":
        return part  # names of fields, and nothing of their values
    if isinstance(part, str):
        return MASKED if part and _names_a_secret(key) else masked_text(part)
    return _tree(part)


def _tree(part: Any) -> Any:
    if isinstance(part, Mapping):
        return _named_value(part) if _is_named_value(part) else _mapping(part)
    if isinstance(part, list):
        return [_tree(each) for each in part]
    return masked_text(part) if isinstance(part, str) else part


def _is_named_value(part: Mapping[str, Any]) -> bool:
    """Such as a header of a probe: a name and its value side by side."""
    return isinstance(part.get("name"), str) and isinstance(part.get("value"), str)


def _named_value(part: Mapping[str, Any]) -> dict[str, Any]:
    return _mapping({**part, "value": MASKED} if key_like(part["name"]) else part)


def _variable(variable: Any, references: Collection[str]) -> Any:
    """An entry of `env`. Where its value comes from (`valueFrom`) is a name, and stays."""
    if not isinstance(variable, Mapping):
        return MASKED if isinstance(variable, str) else _tree(variable)
    kept = {key: _tree(part) for key, part in variable.items() if key != "value"}
    if "value" in variable:
        kept["value"] = _environment_value(variable.get("name"), variable["value"], references)
    return {key: kept[key] for key in variable}


def _environment_value(name: object, value: object, references: Collection[str]) -> object:
    if value in ("", None):
        return value
    if not isinstance(name, str) or key_like(name):
        return MASKED
    allowed = name in _ALLOWED_NAMES or name in references or name.startswith(READ_PREFIXES)
    return masked_shell(value) if allowed and isinstance(value, str) else MASKED


def _annotations(annotations: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: MASKED if _names_a_secret(name) else _annotation(value)
        for name, value in annotations.items()
        if not name.endswith(_LAST_APPLIED)
    }


def _annotation(value: object) -> object:
    """Tools keep whole objects in annotations, as JSON."""
    if not isinstance(value, str):
        return MASKED
    if value.lstrip()[:1] in ("{", "["):
        try:
            tree = json.loads(value)
        except (ValueError, RecursionError):
            return masked_shell(value)
        clean = _tree(tree)
        return value if clean == tree else json.dumps(clean)
    return masked_shell(value)


def _arguments(part: Any) -> Any:
    """A command line as a list of words, or as one string."""
    if isinstance(part, str):
        return masked_shell(part)
    if isinstance(part, list):
        return list(_words(part))
    return _tree(part)


def _words(words: Sequence[Any]) -> Iterator[Any]:
    """Masks the value behind a key-like flag; behind --api-key there may be several."""
    flag = ""
    for word in words:
        if not isinstance(word, str):
            yield _tree(word)
        elif _is_secret(flag, word):
            yield word if _REFERENCE.fullmatch(word) else MASKED
            flag = flag if _API_KEY_FLAG.fullmatch(flag) else ""
        else:
            yield masked_shell(word)
            flag = word


def _is_secret(flag: str, word: str) -> bool:
    """Whether a word is the secret value of the flag before it."""
    if flag in _USER_FLAGS:
        return ":" in word
    return _KEY_FLAG.fullmatch(flag) is not None and not word.startswith("--")


def _strings(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        yield from (word for word in part if isinstance(word, str))
