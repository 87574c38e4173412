"""Whole runs of a runbook on one GPU node in memory, with a DaemonSet controller, a device plugin, a feature
discovery and a MIG manager that do their part: begun, killed, gone on with and taken back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.facts.state import Reason, Unknown
from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.conduct import Ending, abandon
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.planning import Task, plan_of
from gpuctl.runbook.records import Outcome, Standing
from gpuctl.runbook.runbook import Runbook
from gpuctl.runbook.writer import WriteFailed
from tests.runbook.little import Killed
from tests.runbook.mig import mig_scenes
from tests.runbook.mig.mig_scenes import NAME, MigScene, operands
from tests.runbook.mig.node_world import ID, NAMESPACE, NodeWorld, dies

DEPLOY = "nvidia.com/gpu.deploy."
PLUGIN_LABEL = f"{DEPLOY}device-plugin"
GFD_LABEL = f"{DEPLOY}gpu-feature-discovery"
PAUSED = "paused-for-mig-change"
MANAGER, PLUGIN, DISCOVERY = "nvidia-mig-manager", "nvidia-device-plugin-daemonset", "gpu-feature-discovery"
PROFILES: Mapping[str, Any] = {
    "all-1g.10gb": ("1g.10gb",) * 7,
    "all-3g.40gb": ("3g.40gb",) * 2,
    "all-disabled": None,
}
Object = dict[str, Any]


@dataclass
class BookScene(MigScene):
    """The two nodes, for any runbook."""

    book: Runbook | None = None

    @property
    def task(self) -> Task:
        assert self.book is not None
        return Task(self.book, NAME, self.options, self.policy, NAMESPACE, run=self.run)

    @property
    def plan(self) -> TargetPlan:
        return plan_of(self.task, self.look(self.task.runbook.needs))

    def with_(self, **options: Any) -> BookScene:
        """The same with these options."""
        return replace(self, options={**self.options, **options})

    def pod_of(self, app: str) -> Object | None:
        """An operand's pod on the target."""
        for each in self.items:
            about = each["metadata"]
            there = each["kind"] == "Pod" and each["spec"].get("nodeName") == NAME
            if there and about.get("labels", {}).get("app") == app:
                return each
        return None

    def tolerating(self, *tolerations: Mapping[str, str]) -> BookScene:
        """What the operands' DaemonSet tolerates."""
        self.one("DaemonSet", "operand")["spec"]["template"]["spec"]["tolerations"] = list(tolerations)
        return self

    def tainted(self, key: str, effect: str = "NoSchedule", **more: str) -> BookScene:
        """A taint on the target."""
        taints = self.node()["spec"].setdefault("taints", [])
        taints.append({"key": key, "effect": effect, **more})
        return self


def booked(book: Runbook, **options: Any) -> BookScene:
    """A healthy node in seven slices, and another like it."""
    made = mig_scenes.scene()
    found = BookScene(made.items, made.states, policy=made.policy, options=options, book=book, run="")
    found.one("DaemonSet", "operand")["spec"] = {"template": {"spec": {}}}
    return found.tolerating({"operator": "Exists"})


def failed(scene: BookScene, *, at: float = -600) -> BookScene:
    """MIG manager failed after it had cleared the GPU; operands are back and describe that."""
    scene.sliced(()).labelled({STATE: "failed"}, MANAGER, at)
    scene.caught_up()
    return scene


def wedged(scene: BookScene, *, at: float = -3600) -> BookScene:
    """MIG manager gave up waiting in the middle: pending, operands paused, GPUs as they were."""
    scene.labelled({STATE: "pending"}, MANAGER, at)
    scene.labelled({PLUGIN_LABEL: PAUSED, GFD_LABEL: PAUSED}, MANAGER, at)
    scene.drop("Pod", f"{PLUGIN}-{NAME}").drop("Pod", f"{DISCOVERY}-{NAME}")
    for amounts in ("capacity", "allocatable"):
        told = scene.node()["status"][amounts]
        scene.node()["status"][amounts] = dict.fromkeys(told, "0")
    return scene


@dataclass
class World(NodeWorld):
    """The node, which gets a step further at each look. `fails`: how often MIG manager still will; `dead`: no
    pod comes back; `still`: MIG manager stands still at once."""

    scene: BookScene
    fails: int = 0
    dead: bool = False
    still: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lives = 0

    # The cluster

    def goes_on(self) -> None:
        """DaemonSets make the pods that are wanted; those that are new do their work."""
        labels = self.scene.node()["metadata"]["labels"]
        wanted = {PLUGIN: PLUGIN_LABEL, DISCOVERY: GFD_LABEL, MANAGER: f"{DEPLOY}mig-manager"}
        for app, label in wanted.items():
            there = self.scene.pod_of(app)
            if there is None and labels.get(label, "true") == "true" and not self.dead:
                self._make(app)
                if app == MANAGER:
                    self.phase = 1
                else:
                    self.scene.caught_up()
        self._manage()

    def _make(self, app: str) -> None:
        self.lives += 1
        found = [each for each in operands(NAME, made=self.scene.seconds) if app in each["metadata"]["name"]]
        made = copy.deepcopy(found[0])
        about = made["metadata"]
        about |= {"name": f"{about['name']}-{self.lives}", "uid": f"{about['uid']}-{self.lives}"}
        self.scene.items.append(made)

    def _manage(self) -> None:
        """MIG manager's check from its start on: pending, operands paused, applied, back, success."""
        found = self.scene
        config = found.node()["metadata"]["labels"].get(CONFIG, "")
        if self.phase == 1:
            found.labelled({STATE: "pending"}, MANAGER)
            self.phase = 2
        elif self.phase == 2 and not self.still:
            self.phase = 0
            if self.fails:
                self.fails -= 1
                found.sliced(()).labelled({STATE: "failed"}, MANAGER)
                return
            found.sliced(PROFILES[config])
            found.labelled({STATE: "success"}, MANAGER)
            found.labelled({PLUGIN_LABEL: "true", GFD_LABEL: "true"}, MANAGER)
            found.caught_up()

    # Who works on it

    def go_on(self, *, back: bool = False) -> Ending:
        self.kill = self.killed_after = lambda _: None
        return super().go_on(back=back)

    def unlock(self) -> Ending:
        self.kill = self.killed_after = lambda _: None
        return abandon(ID, self.crew(), {STATE_NAMESPACE: NAMESPACE})

    # What stands

    @property
    def unfinished(self) -> bool:
        return ID in self.journals and self.run.state is Standing.UNFINISHED

    @property
    def taints(self) -> list[Object]:
        return list(self.scene.node()["spec"].get("taints", []))

    def label(self, name: str) -> str:
        return str(self.scene.node()["metadata"]["labels"].get(name, ""))


def killed_runs(make: Callable[[], World]) -> Iterator[World]:
    """A run killed before, and after, each of its writes."""
    whole = make()
    assert whole.begin().outcome is Outcome.SUCCEEDED, (whole.said, whole.run.why)
    for at in range(whole.writes):
        for after in (False, True):
            world = make()
            if after:
                world.killed_after = dies(at)
            else:
                world.kill = dies(at)
            try:
                world.begin()
            except Killed:
                yield world
            else:
                raise AssertionError(f"there is no write {at}")


def resumed_everywhere(make: Callable[[], World], done: Callable[[World], None]) -> None:
    """Killed anywhere and resumed, or, where there is nothing to resume, unlocked and begun anew."""
    for world in killed_runs(make):
        if world.unfinished:
            ending = world.go_on()
            assert ending.outcome is Outcome.SUCCEEDED, (ending, world.said)
            done(world)
        elif ID in world.journals:
            if world.locks:
                assert world.unlock().outcome is Outcome.SUCCEEDED
            done(world)
        elif world.locks:
            assert world.unlock().outcome is Outcome.SUCCEEDED
            assert world.marks == make().marks
            assert not world.locks


def undone_everywhere(
    make: Callable[[], World], undone: Callable[[World], None], done: Callable[[World], None]
) -> None:
    """Killed anywhere and taken back; once all is verified there is only the way to the end."""
    for world in killed_runs(make):
        if not world.unfinished:
            continue
        ending = world.go_on(back=True)
        if ending.outcome is Outcome.REFUSED:
            assert world.go_on().outcome is Outcome.SUCCEEDED
            done(world)
            continue
        assert ending.outcome is Outcome.REVERTED, (ending, world.said)
        assert not world.locks
        undone(world)


def disturbed_everywhere(make: Callable[[], World], done: Callable[[World], None]) -> None:
    """In turn, a write is refused, or answered by nobody although carried out: the run goes through, or
    stands and is gone on with, or leaves nothing."""
    whole = make()
    whole.begin()
    for at in range(whole.writes):
        world = make()
        if at % 2:
            world.killed_after = _fails(at)
        else:
            world.kill = _fails(at)
        ending = world.begin()
        world.kill = world.killed_after = lambda _: None
        if world.unfinished:
            ending = world.go_on()
        if ID in world.journals:
            assert ending.outcome is Outcome.SUCCEEDED, (at, ending, world.said)
            done(world)
        if world.locks:
            assert world.unlock().outcome is Outcome.SUCCEEDED


def _fails(at: int) -> Callable[[int], None]:
    def now(number: int) -> None:
        if number == at:
            raise WriteFailed(Unknown(Reason.TIMEOUT, "no answer"))

    return now


def messages(scene: BookScene) -> Sequence[str]:
    """What speaks against the plan, of whatever guard."""
    return [each.message for each in scene.plan.blockers]


def against(scene: BookScene, part: str) -> bool:
    """Whether something with these words speaks against the plan."""
    return any(part in each for each in messages(scene))


def refuses(
    make: Callable[[], BookScene], breaks: Callable[[BookScene], object], guard: str, words: str
) -> None:
    """Nothing speaks against the plan; broken, this guard does in these words."""
    scene = make()
    assert messages(scene) == []
    breaks(scene)
    said = [(each.guard, each.message) for each in scene.plan.blockers]
    assert any(id_ == guard and words in message for id_, message in said), said
