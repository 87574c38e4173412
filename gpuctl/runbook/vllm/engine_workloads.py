"""The Deployment or StatefulSet of an engine: what its pods are, how they are replaced, and its new pods."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, Final

import msgspec

from gpuctl.facts.fact import Logs, Maybe, Within, given
from gpuctl.facts.kinds import Kind, Log, LogReading, Meta, Ref, View
from gpuctl.facts.objects import Deployment, DeploymentStatus
from gpuctl.facts.selectors import has_all
from gpuctl.facts.state import Each, NotKnown, Reason, State, Unknown, value
from gpuctl.kueue.objects import Affinity
from gpuctl.runbook.drain.owners import StatefulSet
from gpuctl.runbook.objects import NumberedMeta, in_namespace, targeted
from gpuctl.runbook.rollouts import unfinished
from gpuctl.runbook.target import OPTIONS, SELF, TARGET, Self
from gpuctl.vllm.engines import Found, engines
from gpuctl.vllm.objects import EnginePod, EngineSpec, Strategy, Template
from gpuctl.vllm.reading import kept, parse, tells, without_end

OF_A_SET: Final = "statefulset/"
SWITCHED_BY: Final = "gpuctl.dev/mode-switched-by"


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    pass


class PartOfASet(_Part, frozen=True):
    partition: int = 0


class UpdateStrategy(_Part, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: PartOfASet = PartOfASet()


class PlacedSpec(EngineSpec, frozen=True):
    """The spec of a template, with what it requires of nodes."""

    affinity: Affinity | None = None


class PlacedTemplate(Template, frozen=True):
    spec: PlacedSpec = PlacedSpec()


class WorkloadSpec(_Part, frozen=True):
    replicas: int = 1
    paused: bool = False
    strategy: Strategy = Strategy()
    update_strategy: UpdateStrategy = UpdateStrategy()
    pod_management_policy: str = "OrderedReady"
    template: PlacedTemplate = PlacedTemplate()


class EngineWorkload(View, frozen=True):
    """A Deployment or a StatefulSet of engines."""

    metadata: NumberedMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: DeploymentStatus = DeploymentStatus()

    @property
    def underway(self) -> str:
        """What is not over yet of its rollout; empty if none is at work."""
        return unfinished(self.metadata, self.spec.replicas, self.status)

    @property
    def broken_pods_stay(self) -> str:
        """What a person does about pods that fail, and are not replaced for that; empty if they are."""
        return ""

    @property
    def switched_by(self) -> str:
        """Which run switched its pods; empty if none did."""
        return self.spec.template.metadata.annotations.get(SWITCHED_BY, "")


class EnginesDeployment(EngineWorkload, frozen=True):
    of: ClassVar[Kind] = Deployment.of


class EnginesSet(EngineWorkload, frozen=True):
    of: ClassVar[Kind] = StatefulSet.of

    @property
    def broken_pods_stay(self) -> str:
        """See Kubernetes' documentation of StatefulSets, "Forced rollback"."""
        if self.spec.pod_management_policy == "Parallel":
            return ""
        delete = f"kubectl -n {self.metadata.namespace} delete pod NAME"
        return f"this StatefulSet replaces no pod that is broken: {delete} lets it go on"


DEPLOYMENT: Final = targeted(EnginesDeployment, in_namespace(Deployment.of))
SET: Final = targeted(EnginesSet, in_namespace(StatefulSet.of, OF_A_SET))


@given(TARGET, Maybe(DEPLOYMENT.now), Maybe(SET.now))
def the_workload(
    target: str, deployment: State[EnginesDeployment], stateful: State[EnginesSet]
) -> EngineWorkload:
    return value(stateful) if target.startswith(OF_A_SET) else value(deployment)


@given(DEPLOYMENT.uid, SET.uid)
def uid_of_the_workload(deployment: str, stateful: str) -> str:
    return deployment or stateful


@given(the_workload, OPTIONS)
def the_engine(workload: EngineWorkload, options: Mapping[str, Any]) -> Found:
    """The container that serves: the only one, or the one that is named. Raises NotKnown."""
    template, about = workload.spec.template, workload.metadata
    meta = Meta(about.name, about.namespace, "", template.metadata.labels, template.metadata.annotations)
    found = list(engines(EnginePod(meta, template.spec)))
    named = str(options.get("container") or "")
    fitting = [each for each in found if named in ("", each.ref.container)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(each.ref.container for each in found) or "none"
    why = f"which container serves is to be named by --container: vLLM runs in {names}"
    raise NotKnown(Unknown(Reason.NOT_ASKED, why, str(workload.ref)))


def place_of(workload: EngineWorkload, container: str) -> int:
    """The index of a container in the template."""
    names = [each.name for each in workload.spec.template.spec.containers]
    return names.index(container)


# Its new pods


@given(the_workload)
def namespace_of_the_workload(workload: EngineWorkload) -> Collection[str]:
    return (workload.metadata.namespace,)


PODS: Final = Within(EnginePod, namespace_of_the_workload)


@given(PODS, SELF)
def pods_of_this_run(pods: Each[Ref, EnginePod], self: Self) -> Each[Ref, EnginePod]:
    """The pods that came of this run's change: they bear its name."""
    return pods.where(
        lambda pod: (
            pod.metadata.annotations.get(SWITCHED_BY) == (self.run or "no run")
            and pod.metadata.deletion_timestamp is None
            and pod.status.phase not in ("Succeeded", "Failed")
        )
    )


@given(pods_of_this_run, the_engine)
def logs_of_the_new_pods(pods: Each[Ref, EnginePod], found: Found) -> Collection[Log]:
    return tuple(log for _, pod in pods.known() for log in _logs(pod, found.ref.container))


def _logs(pod: EnginePod, container: str) -> Iterator[Log]:
    for status in pod.status.container_statuses:
        if status.name == container and (status.state.running or status.state.terminated):
            yield Log(pod.ref, container)


_READING: Final = LogReading(parse, kept, tells, without_end)
LOGS: Final = Logs(logs_of_the_new_pods, _READING)


# Its pods of now


@given(PODS, the_workload, the_engine)
def a_log_of_now(pods: Each[Ref, EnginePod], workload: EngineWorkload, found: Found) -> Collection[Log]:
    """Of one pod that serves already: it tells whether logs may be read."""
    labels = workload.spec.template.metadata.labels
    own = (pod for _, pod in pods.known() if has_all(pod.metadata.labels, labels))
    return tuple(log for pod in own for log in _logs(pod, found.ref.container))[:1]


LOG_OF_NOW: Final = Logs(a_log_of_now, _READING)
