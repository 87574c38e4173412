"""What is read of vLLM's engines, and what is derived from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gpuctl.facts.fact import Logs, Maybe, Named, Objects, Pages, Runs, given
from gpuctl.facts.kinds import Log, LogReading, Ref, View
from gpuctl.facts.pods import Page, PodReading, Run
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown, attempt
from gpuctl.vllm import answers, arguments, launch
from gpuctl.vllm.address import address
from gpuctl.vllm.answers import Answered
from gpuctl.vllm.arguments import Settings
from gpuctl.vllm.engine import Engine, Process
from gpuctl.vllm.engines import CandidatePod, EngineRef, Found, engines, leader_of
from gpuctl.vllm.launch import Launch, Variables
from gpuctl.vllm.log import EngineLog
from gpuctl.vllm.objects import (
    EngineConfigMap,
    EngineContainer,
    EngineDeployment,
    EngineNode,
    EnginePod,
    EngineVolume,
    LinkedService,
)
from gpuctl.vllm.reading import kept, parse, tells, without_end

V = TypeVar("V", bound=View)
K = TypeVar("K", Page, Run)

PODS = Objects[EnginePod](CandidatePod)
NODES = Objects(EngineNode)
DEPLOYMENTS = Objects(EngineDeployment)
SERVICES = Objects(LinkedService)
HEADLESS = "headless"  # a flag: another pod's API serves this engine
NO_ENGINE = Inapplicable("no pod here runs vLLM")


@given(PODS)
def containers_that_serve(pods: Each[Ref, EnginePod]) -> Each[EngineRef, Found]:
    """Every container that runs vLLM, or may."""
    found = {each.ref: Known(each) for _, pod in pods.known() for each in engines(pod)}
    holes = tuple(pods.gaps())
    if not found and not holes:
        raise NotKnown(NO_ENGINE)
    return Each(dict(found), holes)


@given(containers_that_serve)
def files_that_engines_start_from(found: Each[EngineRef, Found]) -> Collection[Ref]:
    """ConfigMaps that hold a --config file or a script of an engine's command."""
    refs = (ref for _, each in found.known() for ref in _config_maps(each))
    return tuple(dict.fromkeys(refs))


CONFIG_MAPS = Named(EngineConfigMap, files_that_engines_start_from)


def _config_maps(found: Found) -> Iterator[Ref]:
    for path in _paths(found.container):
        place = _mounted(path, found)
        if place is not None:
            yield Ref(EngineConfigMap.of, place[0], found.pod.metadata.namespace)


def _paths(container: EngineContainer) -> Iterator[str]:
    """Words of a command line that may be files to start from."""
    for word in (*(container.command or ()), *(container.args or ())):
        for part in word.split():
            if part.startswith("/"):
                yield part.strip("\"';")


def _mounted(path: str, found: Found) -> tuple[str, str] | None:
    """The ConfigMap and the key behind a path of the container."""
    volumes = {volume.name: volume for volume in found.pod.spec.volumes}
    for mount in found.container.volume_mounts:
        volume = volumes.get(mount.name)
        if volume and volume.config_map and path.startswith(mount.mount_path.rstrip("/")):
            inside = mount.sub_path or path[len(mount.mount_path.rstrip("/")) :].lstrip("/")
            key = _key(inside, volume)
            if key:
                return volume.config_map.name, key
    return None


def _key(inside: str, volume: EngineVolume) -> str:
    items = volume.config_map.items if volume.config_map else ()
    return next((item.key for item in items if item.path == inside), "" if items else inside)


@given(containers_that_serve)
def logs_of_engines(found: Each[EngineRef, Found]) -> Collection[Log]:
    """The logs of containers that ever ran; of those that were restarted also the one before."""
    return tuple(each for _, engine in found.known() for each in _logs(engine))


def _logs(found: Found) -> Iterator[Log]:
    for status in found.pod.status.container_statuses:
        if status.name == found.ref.container:
            if status.state.running or status.state.terminated or status.restart_count:
                yield Log(found.ref.pod, found.ref.container)
            if status.restart_count:
                yield Log(found.ref.pod, found.ref.container, previous=True)


LOGS = Logs(logs_of_engines, LogReading(parse, kept, tells, without_end))


@dataclass(frozen=True, slots=True)
class Way:
    """How an engine is started, as far as its pod's spec shows it."""

    found: Found
    launch: Launch
    settings: Settings
    environment: Variables


@given(containers_that_serve, Maybe(CONFIG_MAPS))
def ways_engines_start(
    found: Each[EngineRef, Found], config_maps: State[Each[Ref, EngineConfigMap]]
) -> Each[EngineRef, Way]:
    """By their commands, arguments, environment and the files that were read."""
    return found.map(lambda each: _way(each, config_maps))


def _way(found: Found, config_maps: State[Each[Ref, EngineConfigMap]]) -> Way:
    environment = launch.variables(found.container)
    started = launch.launch(
        found.container,
        environment,
        entrypoint=found.stack.entrypoint,
        files=lambda path: _file(path, found, config_maps),
    )
    settings, missing = _settings(found, started.words or (), environment.known, config_maps)
    if missing and not started.opaque:
        started = launch.Launch(started.program, started.words, missing, started.script)
    return Way(found, started, settings, environment)


@given(ways_engines_start)
def pages_of_engines(ways: Each[EngineRef, Way]) -> Collection[Page]:
    """What running engines show over HTTP. Workers of a group show nothing: their leader does."""
    pages = (page for _, way in ways.known() if _shows_pages(way) for page in _pages(way))
    return tuple(dict.fromkeys(pages))


def _shows_pages(way: Way) -> bool:
    return _can_be_asked(way.found) and HEADLESS not in way.settings.flags


def _pages(way: Way) -> Iterator[Page]:
    port, https = address(way.found, way.settings)
    for path in answers.PATHS:
        yield Page(way.found.ref.pod, port, path, https)


@given(containers_that_serve)
def command_lines_of_engines(found: Each[EngineRef, Found]) -> Collection[Run]:
    """The command lines of the first processes of running engines."""
    return tuple(_run(each) for _, each in found.known() if _can_be_asked(each))


def _run(found: Found) -> Run:
    return Run(found.ref.pod, found.ref.container, answers.COMMAND_LINE)


def _can_be_asked(found: Found) -> bool:
    statuses = found.pod.status.container_statuses
    running = any(each.name == found.ref.container and each.state.running for each in statuses)
    return running and not leader_of(found.pod)


PAGES = Pages(pages_of_engines, PodReading(answers.of_page, answers.kept_of_page))
COMMAND_LINES = Runs(command_lines_of_engines, PodReading(answers.of_run, answers.kept_of_run))


@given(ways_engines_start, Maybe(CONFIG_MAPS), Maybe(LOGS), Maybe(NODES), Maybe(PAGES), Maybe(COMMAND_LINES))
def engines_of_vllm(
    ways: Each[EngineRef, Way],
    config_maps: State[Each[Ref, EngineConfigMap]],
    logs: State[Each[Log, EngineLog]],
    nodes: State[Each[Ref, EngineNode]],
    pages: State[Each[Page, answers.Answer]],
    command_lines: State[Each[Run, tuple[str, ...]]],
) -> Each[EngineRef, Engine]:
    """Every engine with what is known of it. What could not be read of one is unknown where it is touched."""

    def engine(way: Way) -> Engine:
        found = way.found
        answered = _answered(way, pages, command_lines)
        return Engine(
            found=found,
            launch=way.launch,
            spec=way.settings,
            environment=way.environment,
            node=_known(nodes, Ref(EngineNode.of, found.pod.spec.node_name)),
            log=_log(logs, Log(found.ref.pod, found.ref.container)),
            before=_log(logs, Log(found.ref.pod, found.ref.container, previous=True)),
            answered=answered,
            process=_process(way, answered, config_maps),
        )

    return ways.map(engine)


def _answered(
    way: Way, pages: State[Each[Page, answers.Answer]], command_lines: State[Each[Run, tuple[str, ...]]]
) -> Answered:
    command_line = _entry(command_lines, _run(way.found)) if _can_be_asked(way.found) else None
    if not _shows_pages(way):
        return Answered(command_line=command_line)
    version, metered, info = (_entry(pages, page) for page in _pages(way))
    return Answered(version, metered, info, command_line)


def _entry(state: State[Each[K, Any]], key: K) -> State[Any] | None:
    return state.value.entries.get(key) if isinstance(state, Known) else state


def _process(way: Way, answered: Answered, config_maps: State[Each[Ref, EngineConfigMap]]) -> Process | None:
    """What the engine's process was started with, if it is vLLM's own."""
    started = launch.started_with(answers.value_of(answered.command_line) or ())
    if started is None:
        return None
    settings, missing = _settings(way.found, started[1], way.environment.known, config_maps)
    return Process(started[1], settings, missing)


def _settings(
    found: Found,
    words: Sequence[str],
    environment: Mapping[str, str],
    config_maps: State[Each[Ref, EngineConfigMap]],
) -> tuple[Settings, str]:
    """The flags, and what of them could not be read."""
    own = arguments.of_words(words)
    settings = own.over(arguments.of_environment(environment, found.container.image))
    path = own.get("config")
    if not path or own.flags["config"].value != path:
        return settings, ""
    text = _file(path, found, config_maps)
    if text is None:
        return settings, f"its --config file {path} can't be read"
    tree = _yaml(text)
    if tree is None:
        return settings, f"its --config file {path} does not parse"
    return settings.over(arguments.of_config(tree, path)), ""


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text) or {}
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


def _file(path: str, found: Found, config_maps: State[Each[Ref, EngineConfigMap]]) -> str | None:
    """The text of a file of the container, if a ConfigMap that was read holds it."""
    place = _mounted(path, found)
    if place is None:
        return None
    config_map = _known(config_maps, Ref(EngineConfigMap.of, place[0], found.pod.metadata.namespace))
    return config_map.data.get(place[1]) if config_map else None


def _known(state: State[Each[Ref, V]], ref: Ref) -> V | None:
    """An object, if it exists and could be read."""
    if not isinstance(state, Known):
        return None
    objects = state.value
    found = attempt(lambda: objects.get(ref))
    return found.value if isinstance(found, Known) else None


def _log(logs: State[Each[Log, EngineLog]], log: Log) -> State[EngineLog] | None:
    if not isinstance(logs, Known):
        return Unknown(logs.reason, logs.message, str(log)) if isinstance(logs, Unknown) else logs
    found = logs.value.entries.get(log)
    if found is None and logs.value.holes:
        return Unknown(Reason.NOT_ASKED, logs.value.holes[0].message, str(log))
    return found
