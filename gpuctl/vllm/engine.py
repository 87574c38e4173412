"""One engine with all that is known of it: its arguments, its log, the GPU it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from gpuctl.facts.objects import ContainerStatus
from gpuctl.facts.state import Inapplicable, Known, NotKnown, Reason, State, Unknown, attempt, value
from gpuctl.vllm import memory as memories
from gpuctl.vllm import mode as modes
from gpuctl.vllm import version as versions
from gpuctl.vllm.answers import Answered, Metered
from gpuctl.vllm.answers import value_of as value_of_answer
from gpuctl.vllm.arguments import Settings
from gpuctl.vllm.configured import UNCERTAIN, asked_for_eager, configured
from gpuctl.vllm.engines import EngineRef, Found, gpus, leader_of, workload
from gpuctl.vllm.failures import Failure
from gpuctl.vllm.launch import Launch, Variables
from gpuctl.vllm.log import EngineLog, Start
from gpuctl.vllm.memory import Memory
from gpuctl.vllm.mode import Mode
from gpuctl.vllm.objects import EngineNode, EnginePod
from gpuctl.vllm.version import Version

NOT_ASKED = Answered()
ROTATED = "its log begins after its start: the lines that tell were rotated away"
SILENT = "its log does not tell"


@dataclass(frozen=True, slots=True)
class Process:
    """What an engine's process was started with, as the kernel tells it. `opaque`: what of that can't be
    read."""

    words: tuple[str, ...]
    settings: Settings
    opaque: str = ""


@dataclass(frozen=True)
class Engine:
    """`spec` is what the pod's own spec sets. `log` and `before` (of the previous process) are None where no
    such log was ever written; `process` where nobody looked, or it is not vLLM's own."""

    found: Found
    launch: Launch
    spec: Settings
    environment: Variables
    node: EngineNode | None = None
    log: State[EngineLog] | None = None
    before: State[EngineLog] | None = None
    answered: Answered = NOT_ASKED
    process: Process | None = None

    @property
    def ref(self) -> EngineRef:
        """The engine's name."""
        return self.found.ref

    @property
    def pod(self) -> EnginePod:
        """The pod it runs in."""
        return self.found.pod

    @property
    def workload(self) -> str:
        """What a person calls the thing it belongs to."""
        return workload(self.pod)

    @property
    def status(self) -> ContainerStatus:
        """What the kubelet says of its container."""
        named = (each for each in self.pod.status.container_statuses if each.name == self.ref.container)
        return next(named, ContainerStatus(self.ref.container))

    @cached_property
    def start(self) -> Start | None:
        """The start that tells most: the running process's, else the one of the process before."""
        return self._start(self.log) or self._start(self.before)

    @staticmethod
    def _start(log: State[EngineLog] | None) -> Start | None:
        if not isinstance(log, Known) or log.value.begins_later:
            return None
        return log.value.start

    @property
    def version(self) -> Version | None:
        """By the log, else by what it answers, else by the image's tag."""
        told = versions.parse(self.start.version) if self.start else None
        answered = versions.parse(value_of_answer(self.answered.version) or "")
        return told or answered or self.found.image_version

    @property
    def version_text(self) -> str:
        """Its version, or what it calls itself where that names no release; empty where nothing tells."""
        called = (self.start.version if self.start else "", value_of_answer(self.answered.version) or "")
        return str(self.version or next(filter(versions.is_written, called), ""))

    @property
    def leader(self) -> str:
        """For a worker of a group: who leads it."""
        return leader_of(self.pod)

    @property
    def state(self) -> str:
        """not started, starting, serving, failed, or worker: what it does now, in a word."""
        ran = self.status.state.running or self.status.state.terminated or self.status.restart_count
        if self.leader:
            return "worker"
        if not ran:
            return "not started"
        if self.fails:
            return "failed"
        return "starting" if self._starting else "serving"

    @property
    def _starting(self) -> bool:
        if isinstance(self.log, Known) and self.log.value.start and not self.log.value.cut:
            start = self.log.value.start
            return bool(start.quotes) and not start.ready and start.failure is None
        return not self.status.ready

    @property
    def failure(self) -> Failure | None:
        """Why the newest attempt to start failed; None if it did not, or nobody can tell."""
        for log in (self.log, self.before):
            if isinstance(log, Known) and log.value.starts:
                return log.value.starts[-1].failure
        return None

    @property
    def fails(self) -> bool:
        """Whether its newest attempt failed. Without a readiness probe a container is ready while it runs, so
        only a log that shows it serving says that it is well."""
        return self.failure is not None and not (self.status.ready and self._serves)

    @property
    def _serves(self) -> bool:
        if not isinstance(self.log, Known):
            return True
        start = self.log.value.start
        return self.log.value.begins_later or (start is not None and start.ready)

    @property
    def told(self) -> Start:
        """What the log tells of the start, or `NotKnown` with the reason."""
        if self.start is not None:
            return self.start
        raise NotKnown(self._why_untold())

    def _why_untold(self) -> Unknown | Inapplicable:
        if self.state in ("not started", "starting"):
            return Inapplicable(f"the engine is {self.state}")
        if isinstance(self.log, Unknown | Inapplicable):
            return self.log
        rotated = isinstance(self.log, Known) and self.log.value.begins_later
        return Unknown(Reason.NOT_ASKED, ROTATED if rotated else SILENT, str(self.ref))

    @property
    def seen(self) -> Mode | None:
        """The mode that the log shows so far, also of an engine that still starts and is not judged."""
        return modes.of_start(self.start, self.found.image_version) if self.start else None

    @cached_property
    def informed(self) -> Mode | None:
        """The mode that /server_info tells."""
        info = value_of_answer(self.answered.info)
        told = modes.of_start(info, self.version) if info else None
        return replace(told, why="/server_info") if told else None

    @property
    def metered(self) -> Metered | None:
        """What /metrics tells."""
        metered: Metered | None = value_of_answer(self.answered.metered)
        return metered

    @property
    def generation(self) -> str:
        """V0 or V1, by the log; empty where it does not tell."""
        if self.start is None and isinstance(self.log, Known) and self.log.value.starts:
            return self.log.value.starts[-1].engine
        return self.start.engine if self.start else ""

    @cached_property
    def mode(self) -> Mode:
        """The effective mode, or `NotKnown` with the reason. A worker's is its leader's."""
        if self.leader:
            raise NotKnown(Inapplicable(f"a worker: the log of {self.leader} tells"))
        if self.state in ("not started", "starting"):
            raise NotKnown(Inapplicable(f"the engine is {self.state}"))
        told = self.seen or self.informed
        if told is not None:
            return told
        planned = self.planned
        if isinstance(planned, Known):
            return planned.value
        raise NotKnown(self._why_unknown(value_of(planned)))

    def _why_unknown(self, planned: str) -> Unknown:
        """A log that was tried and failed is the reason; else what the pod's spec hides."""
        if isinstance(self.log, Unknown):
            return Unknown(self.log.reason, f"{planned}; its log: {self.log.message}", str(self.ref))
        rotated = isinstance(self.log, Known) and self.log.value.begins_later
        said = [planned, ROTATED if rotated else SILENT]
        if isinstance(self.answered.command_line, Inapplicable):
            said.append(str(self.answered.command_line))
        return Unknown(Reason.NOT_ASKED, "; ".join(said), str(self.ref))

    @cached_property
    def planned(self) -> State[Mode]:
        """The mode that arguments, environment and version lead to: those of its process where they are
        known, else those of its pod."""
        return self._planned(self.settings, self.opaque)

    @cached_property
    def specified(self) -> State[Mode]:
        """The mode that the pod's spec leads to."""
        return self._planned(self.spec, self._spec_opaque)

    def _planned(self, settings: Settings, opaque: str) -> State[Mode]:
        if opaque and not settings.eager:
            return Unknown(Reason.NOT_ASKED, opaque, str(self.ref))
        found = configured(settings, self.environment.known, self.version, platform=self.found.stack.platform)
        if found is None:
            return Unknown(Reason.NOT_ASKED, UNCERTAIN, str(self.ref))
        return Known(found)

    @property
    def settings(self) -> Settings:
        """What it was started with: by its process's command line where that is known, else by its spec."""
        return self.process.settings if self.process else self.spec

    @property
    def opaque(self) -> str:
        """Why not everything is known that vLLM was started with; empty if it is."""
        return self.process.opaque if self.process else self._spec_opaque

    @property
    def _spec_opaque(self) -> str:
        """Why the pod's spec does not show everything it starts vLLM with; empty if it does."""
        if self.found.stack.why_not:
            return self.found.stack.why_not
        if self.launch.words is None:
            return self.launch.opaque or "its command does not show how it starts vLLM"
        return self.launch.opaque

    @property
    def asked_for_eager(self) -> str:
        """What in the pod's own spec asks for a run without graphs, or what its process was given."""
        by_spec = asked_for_eager(self.spec)
        by_process = asked_for_eager(self.process.settings) if self.process and not by_spec else ""
        return by_spec or (f"{by_process} on the command line of its process" if by_process else "")

    @property
    def utilization(self) -> float | None:
        """The share of the GPU it may use: by the log, the arguments, or the version's default."""
        told = self.start.utilization if self.start else None
        if told is None and self.metered is not None:
            told = self.metered.utilization
        if told is not None:
            return told
        if "gpu-memory-utilization" in self.settings.flags or self.opaque:
            return self.settings.utilization
        return memories.default_utilization(self.version)

    @property
    def parallel(self) -> Mapping[str, int]:
        """The sizes above one of its tensor, pipeline and data parallelism."""
        told = self.start
        sizes = {
            "tensor": told.tensor_parallel if told else None,
            "pipeline": told.pipeline_parallel if told else None,
            "data": told.data_parallel if told else None,
        }
        return {
            **{name: size for name, size in sizes.items() if size and size > 1},
            **self.settings.parallel,
        }

    @property
    def resources(self) -> Mapping[str, int]:
        """The GPU resources its container asks for."""
        return gpus(self.found.container)

    @property
    def mig(self) -> tuple[str, ...]:
        """The MIG slices among them, as far as their names or the labels of its node tell."""
        all_sliced = memories.offers_slices(self._labels)
        return tuple(
            name
            for name in self.resources
            if memories.is_slice(name) or (name in memories.PLAIN and all_sliced)
        )

    @property
    def device_gib(self) -> float | None:
        """The size of one GPU or slice it has, by the node's labels."""
        return memories.device_gib(self.resources, self._labels)

    @property
    def _labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels if self.node else {}

    @property
    def memory(self) -> tuple[Memory, ...]:
        """The memory of every rank, or `NotKnown`."""
        return memories.of_start(self.told, self.version, self.utilization, self.device_gib)

    @property
    def starts(self) -> int:
        """How many attempts to start its log shows."""
        return len(self.log.value.starts) if isinstance(self.log, Known) else 0


def value_of(state: State[Mode]) -> str:
    """Why a mode is not known, in words."""
    return state.message if isinstance(state, Unknown) else "" if isinstance(state, Known) else state.why


def known_mode(engine: Engine) -> Mode | None:
    """The mode if it is known."""
    found = attempt(lambda: engine.mode)
    return value(found) if isinstance(found, Known) else None
