"""The words vLLM is started with: through the kubelet's expansion, shells, scripts and wrappers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpuctl.vllm.arguments import ALONE
from gpuctl.vllm.objects import EngineContainer, Variable

MASKED: Final = "<masked>"
_REFERENCE: Final = re.compile(r"\$(\$|\((\w[\w.-]*)\))")
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_COMMAND_FLAG: Final = re.compile(r"-[a-z]*c[a-z]*")
_INTERPRETER: Final = re.compile(r"python[\d.]*|uv|env|exec|numactl|nohup|ray")
_SHELL_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)(?::?([-+=?])([^{}]*))?\}|([A-Za-z_]\w*)|([@*#?0-9]))")
_SUBSTITUTION: Final = re.compile(r"\$\([^()]*\)|`[^`]*`")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_OPENS: Final = frozenset({"if", "for", "while", "until", "case"})
_CLOSES: Final = frozenset({"fi", "done", "esac"})
OUTPUT: Final = "output_of_a_command"  # stands where a script uses what another command prints
_COMMENT: Final = re.compile(r"(^|[ \t;])#[^\n]*", re.MULTILINE)
_MOST_WORDS: Final = 20_000

Files = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Variables:
    """A container's environment. Of the hidden ones only the names are known; `more` may hide others."""

    known: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    more: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """How a container starts vLLM. `words` are its arguments, None if it is not seen to start vLLM at all.
    `opaque` says what else may be among them that can't be read."""

    program: str = ""
    words: tuple[str, ...] | None = None
    opaque: str = ""
    script: str = ""  # a script file that stands in between
    text: str = ""  # of the script, where there is one and it could be read


def variables(container: EngineContainer) -> Variables:
    """The environment as the kubelet builds it: in order, with $(X) from what came before."""
    known: dict[str, str] = {}
    hidden: set[str] = set()
    for variable in container.env:
        _define(variable, known, hidden)
    return Variables(known, frozenset(hidden), bool(container.env_from))


def _define(variable: Variable, known: dict[str, str], hidden: set[str]) -> None:
    if variable.value_from is not None or MASKED in (variable.value or ""):
        hidden.add(variable.name)
        known.pop(variable.name, None)
    else:
        hidden.discard(variable.name)
        known[variable.name] = expanded(variable.value or "", known)


def expanded(text: str, known: Mapping[str, str]) -> str:
    """The kubelet's expansion: $(X) of a known variable, $$ for a dollar; what is not known stays."""

    def value(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return known.get(found[2], found[0])

    return _REFERENCE.sub(value, text)


def launch(container: EngineContainer, environment: Variables, *, entrypoint: bool, files: Files) -> Launch:
    """How this container starts vLLM. `entrypoint`: its image starts vLLM unless told otherwise."""
    command = _words(container.command, environment)
    arguments = _words(container.args, environment)
    if entrypoint and not command and not _is_command(arguments):
        words = arguments[1:] if arguments[:1] == ("serve",) else arguments
        return Launch("the image's entrypoint", words, _unresolved(words, environment))
    return _in_words((*command, *arguments), environment, files)


def _is_command(arguments: Sequence[str]) -> bool:
    """Whether arguments alone are a command of their own: images may run whatever they are given."""
    first = arguments[0] if arguments else ""
    shell = first.rpartition("/")[2] in _SHELLS or first.endswith((".sh", ".py"))
    return shell or started_with(arguments) is not None


def _words(words: Iterable[str] | None, environment: Variables) -> tuple[str, ...]:
    return tuple(expanded(word, environment.known) for word in words or ())


def _in_words(words: Sequence[str], environment: Variables, files: Files, depth: int = 0) -> Launch:
    if words and len(words[0].split()) > 1 and "vllm" in words[0]:  # one string instead of a list
        words = (*_split(words[0]), *words[1:])
    script = _shell_script(words)
    if script is not None:
        return _in_script(script[0], script[1], environment, files, depth)
    started = started_with(words)
    if started:
        program, own = started
        return Launch(program, own, _unresolved(own, environment))
    return _in_file(words, environment, files, depth)


def _shell_script(words: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The script behind `sh -c`, and the words that are its $1, $2, …"""
    for number, word in enumerate(words[:-1]):
        if word.rpartition("/")[2] in _SHELLS:
            for place in range(number + 1, min(number + 6, len(words) - 1)):
                if _COMMAND_FLAG.fullmatch(words[place]):
                    return words[place + 1], tuple(words[place + 3 :])
            return None
        if not _INTERPRETER.fullmatch(word.rpartition("/")[2]):
            return None
    return None


def _in_file(words: Sequence[str], environment: Variables, files: Files, depth: int) -> Launch:
    """A script file: read if a ConfigMap holds it, else nobody knows what it starts."""
    names = [word for word in words[:4] if word.startswith("/") or word.endswith((".sh", ".py"))]
    names = [
        name
        for name in names
        if name.rpartition("/")[2] not in _SHELLS and not _INTERPRETER.fullmatch(name.rpartition("/")[2])
    ]
    if not names:
        return Launch()
    text = files(names[0]) if depth < 2 else None  # noqa: PLR2004 - a script that starts a script, no further
    if text is None or names[0].endswith(".py"):
        return Launch(names[0], None, f"it starts {names[0]}, which can't be read", names[0])
    rest = tuple(words[list(words).index(names[0]) + 1 :])
    found = _in_script(text, rest, environment, files, depth)
    return replace(found, program=found.program or names[0], script=names[0])


def started_with(words: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The program and its arguments, if these words start vLLM."""
    for number, word in enumerate(words):
        name, following = word.rpartition("/")[2], words[number + 1] if number + 1 < len(words) else ""
        if name == "vllm" and following in ("serve", "run-batch"):
            return f"vllm {following}", tuple(words[number + 2 :])
        if word == "-m" and following.startswith(("vllm.entrypoints", "huggingfaceserver", "dynamo.vllm")):
            return following, tuple(words[number + 2 :])
        if word.endswith("vllm/entrypoints/openai/api_server.py"):
            return word, tuple(words[number + 1 :])
    return None


def _unresolved(words: Sequence[str], environment: Variables) -> str:
    """The first word that may hold flags nobody can see. The value of a flag hides none."""
    before = ""
    for number, word in enumerate(words):
        name = _reference_name(word)
        is_value = _takes_value(before)
        if (
            name
            and number
            and not is_value
            and (name in environment.hidden or environment.more or MASKED in word)
        ):
            return f"${name} is not known"
        before = word
    return ""


def _takes_value(word: str) -> bool:
    return word.startswith("-") and "=" not in word and word.lstrip("-").replace("_", "-") not in ALONE


def _reference_name(word: str) -> str:
    found = re.fullmatch(r"\$\(?\{?(\w+)\}?\)?", word)
    return found[1] if found else ""


# Scripts


@dataclass(slots=True)
class _Shell:
    """As much of a shell as scripts that start vLLM use."""

    environment: Variables
    positional: tuple[str, ...]
    files: Files
    level: int
    own: dict[str, str | None] = field(
        default_factory=lambda: {OUTPUT: None}
    )  # None: set to something unknown
    depth: int = 0  # of conditions and loops
    unknown: list[str] = field(default_factory=list)  # in the statement at hand

    def look_up(self, name: str) -> str | None:
        if name in self.own:
            return self.own[name]
        if name in self.environment.known:
            return self.environment.known[name]
        return None if name in self.environment.hidden or self.environment.more else ""

    def expand(self, word: str) -> list[str]:
        """The words that a word becomes. One that is a variable alone is split, as without quotes."""
        if word in ("$@", "$*", "${@}", "${@:1}"):
            return list(self.positional)
        alone = _SHELL_VARIABLE.fullmatch(word)
        text = _SHELL_VARIABLE.sub(self._value, word)
        if alone and not text.lstrip().startswith(("{", "[")):
            return _split(text)
        return [text]

    def _value(self, found: re.Match[str]) -> str:
        name = found[1] or found[4]
        if name is None:
            return " ".join(self.positional) if found[5] in "@*" else ""
        value = self.look_up(name)
        if found[2] == "+":
            return "" if value == "" else found[3]
        if value is None:
            self.unknown.append(name)
            return f"${{{name}}}"
        return value or (found[3] if found[2] in ("-", "=") else "") or ""


def _in_script(
    text: str, positional: tuple[str, ...], environment: Variables, files: Files, depth: int
) -> Launch:
    shell = _Shell(environment, positional, files, depth)
    try:
        found = [started for started in (_run(each, shell) for each in _statements(text)) if started]
    except ValueError as error:
        return Launch("a script", None, f"its script does not parse: {error}", text=text)
    if not found:
        opaque = "its script starts nothing that is known" if "vllm" in text else ""
        return Launch("a script" if opaque else "", None, opaque, text=text)
    several = len({each.words for each in found}) > 1
    opaque = "its script starts vLLM in several ways" if several else found[-1].opaque
    return replace(found[-1], opaque=opaque, text=text)


def _statements(text: str) -> Iterator[list[str]]:
    """The simple commands of a script, in words. Raises ValueError."""
    text = _COMMENT.sub(r"\1", _SUBSTITUTION.sub(f"${{{OUTPUT}}}", text.replace("\\\n", " ")))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for count, token in enumerate(lexer):
        if count > _MOST_WORDS:
            raise ValueError("too long")
        if token.strip(";&|()\n"):
            words.append(token)
        else:
            yield words
            words = []
    yield words


def _run(statement: list[str], shell: _Shell) -> Launch | None:
    """Takes note of a command's assignments, and says whether it starts vLLM."""
    words = list(statement)
    while words and words[0] in ("{", "}", "then", "do", "else", "!", "time"):
        words.pop(0)
    if words and words[0] in _CLOSES:
        shell.depth = max(0, shell.depth - 1)
    if words and words[0] in _OPENS:
        shell.depth += 1
        return None
    return _command(words, shell) if words and words[0] != "elif" else None


def _command(words: list[str], shell: _Shell) -> Launch | None:
    while words and (
        words[0] in ("export", "local", "declare", "readonly", "exec", "eval")
        or _ASSIGNMENT.fullmatch(words[0])
    ):
        word = words.pop(0)
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned:
            _assign(assigned, shell)
        elif word == "eval":
            words = _split(" ".join(words))
    shell.unknown.clear()
    expanded_words = [part for word in words for part in shell.expand(word)]
    started = started_with(expanded_words)
    if started is None:
        nested = _shell_script(expanded_words)
        if nested and shell.level < 2:  # noqa: PLR2004 - a script in a script, no further
            return _only_started(
                _in_script(nested[0], nested[1], shell.environment, shell.files, shell.level + 1)
            )
        return None
    program, own = started
    hidden = _hiding(own)
    return Launch(program, own, f"${hidden} is not known" if hidden else "")


def _only_started(found: Launch) -> Launch | None:
    return found if found.words is not None else None


def _hiding(words: Sequence[str]) -> str:
    """A word that stands where flags may stand, and is not known."""
    before = "serve"
    for number, word in enumerate(words):
        alone = re.fullmatch(r"\$\{(\w+)\}", word)
        is_value = number == 0 or _takes_value(before)
        if alone and not is_value:
            return alone[1]
        before = word
    return ""


def _assign(found: re.Match[str], shell: _Shell) -> None:
    name, adds, text = found.groups()
    shell.unknown.clear()
    value: str | None = " ".join(shell.expand(text)) if text else ""
    if shell.unknown or shell.depth:
        value = None
    if adds:
        before = shell.look_up(name)
        value = None if before is None or value is None else before + value
    shell.own[name] = value


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
