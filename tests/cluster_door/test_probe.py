"""Looking into nodes: by which way, with whose consent, and what is left when something goes wrong."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from gpuctl.cluster import probe
from gpuctl.cluster.connection import Connection, Reply
from gpuctl.cluster.deadline import Deadline
from gpuctl.cluster.probe import Prober, Probing
from gpuctl.cluster.recorded_commands import Probed
from gpuctl.cluster.reviews import Reviews
from gpuctl.cluster.script import taken_apart
from gpuctl.cluster.sink import NoSink
from gpuctl.facts.nodes import Output, Place, Target
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown
from gpuctl.nvidia.listing import Listing, parse_listing
from tests.builders.gpus import sliced
from tests.cluster.standins import faults
from tests.cluster.standins.state import NVIDIA_SMI, NodeState

Answer = tuple[str, str, int]
LISTING = "nvidia-smi-L"


@dataclass
class Socket:
    """What a kubelet sends: a frame for each stream, then the status."""

    frames: list[bytes]

    def settimeout(self, seconds: float) -> None:
        self.seconds = seconds

    def recv_data(self) -> tuple[int, bytes]:
        import websocket

        if not self.frames:
            raise websocket.WebSocketTimeoutException("timed out")
        return 2, self.frames.pop(0)

    def close(self, timeout: float = 0) -> None:
        self.frames.clear()


def status(code: int) -> bytes:
    if code == 0:
        return json.dumps({"status": "Success"}).encode()
    cause = {"reason": "ExitCode", "message": str(code)}
    return json.dumps({"status": "Failure", "details": {"causes": [cause]}}).encode()


@dataclass
class Cluster:
    """An API server of a few pods. `runs` answers a command line in a pod; None hangs."""

    runs: Mapping[str, Callable[[list[str]], Answer | None]] = field(default_factory=dict)
    forbidden: frozenset[str] = frozenset()
    log: Callable[[str], str] = lambda _: ""
    state: Mapping[str, Any] = field(default_factory=lambda: {"phase": "Succeeded"})
    left: Sequence[Mapping[str, Any]] = ()
    refuses: Reply | None = None
    made: dict[str, Any] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    execs: list[str] = field(default_factory=list)

    def socket(self, path: str, _protocol: str, what: str, _deadline: Deadline) -> Any:
        pod = path.split("/pods/")[1].split("/", maxsplit=1)[0]
        command = parse_qs(urlsplit(path).query)["command"]
        self.execs.append(pod)
        answer = self.runs[pod](command)
        if answer is None:
            return Socket([])
        stdout, stderr, code = answer
        if code < 0:
            failure = {"status": "Failure", "message": stderr}
            return Socket([b"\x03" + json.dumps(failure).encode()])
        return Socket([b"\x01" + stdout.encode(), b"\x02" + stderr.encode(), b"\x03" + status(code)])

    def post(self, path: str, body: Any, what: str, deadline: Deadline, *, stores: bool = True) -> Reply:
        if path.endswith("selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            resource = "/".join(part for part in (asked["resource"], asked.get("subresource", "")) if part)
            allowed = f"{asked['verb']} {resource}" not in self.forbidden
            return Reply(201, json.dumps({"status": {"allowed": allowed}}).encode())
        if path.endswith("selfsubjectreviews"):
            return Reply(201, json.dumps({"status": {"userInfo": {"username": "ada"}}}).encode())
        if self.refuses:
            return self.refuses
        self.made[body["metadata"]["name"]] = body
        return Reply(201, b"{}")

    def get(self, path: str, what: str, deadline: Deadline, head: Any = None) -> Reply:
        name = path.rsplit("/pods", 1)[1].strip("/")
        if path.split("?", maxsplit=1)[0].endswith("/log"):
            script = self.made[name.split("/")[0]]["spec"]["containers"][0]["command"][2]
            return Reply(200, self.log(script).encode())
        if name.startswith("?") or not name:
            return Reply(200, json.dumps({"items": list(self.left)}).encode())
        return Reply(200, json.dumps({"metadata": {"name": name}, "status": dict(self.state)}).encode())

    def delete(self, path: str, body: Any, what: str, deadline: Deadline) -> Reply:
        self.deleted.append(path.rsplit("/", 1)[1])
        return Reply(200, b"{}")


@dataclass
class Notes(NoSink):
    probes: dict[str, Probed] = field(default_factory=dict)

    def probed(self, probed: Probed) -> None:
        self.probes[probed.node] = probed


@pytest.fixture
def here(tmp_path: Path) -> Callable[[NodeState], Callable[[list[str]], Answer]]:
    """Runs command lines on this machine, with the stand-in of nvidia-smi in a state."""
    tools = tmp_path / "bin"
    tools.mkdir()
    smi = tools / "nvidia-smi"
    smi.write_bytes(NVIDIA_SMI.read_bytes())
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)

    def within(state: NodeState) -> Callable[[list[str]], Answer]:
        file = state.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.json")
        environment = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "NVIDIA_SMI_STATE": str(file)}

        def run(command: list[str]) -> Answer:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            return done.stdout, done.stderr, done.returncode

        return run

    return within


def target(node: str, *pods: str) -> Target:
    return Target(node, tuple(Place("gpu-operator", pod, "main", "driver pod") for pod in pods))


def looked(
    cluster: Cluster, *targets: Target, sink: Notes | None = None, **probing: Any
) -> Mapping[str, State[Listing]]:
    """What -L said on each node."""
    connection, deadline = cast("Connection", cluster), Deadline.after(30)
    consent = Probing(**{"mode": "exec", "seconds": 10.0, **probing})
    prober = Prober(connection, deadline, sink or Notes(), Reviews(connection, deadline), consent)
    (state,) = prober.commands([(LISTING, parse_listing)], targets)
    prober.close()
    assert isinstance(state, Known | Unknown)
    if isinstance(state, Unknown):
        return {each.node: state for each in targets}
    found: Each[str, Listing] = state.value
    return found.entries


def gpus(state: State[Listing]) -> int:
    assert isinstance(state, Known), state
    return len(state.value.gpus)


def reason(state: State[Listing]) -> Reason:
    assert isinstance(state, Unknown), state
    return state.reason


def no_shell(run: Callable[[list[str]], Answer]) -> Callable[[list[str]], Answer]:
    def without(command: list[str]) -> Answer:
        if command[0] == "sh":
            return "", 'exec: "sh": executable file not found in $PATH: unknown', -1
        return run(command)

    return without


def test_a_pod_that_has_it_is_asked_once(here: Any) -> None:
    cluster, sink = Cluster({"a": here(sliced().state)}), Notes()
    assert gpus(looked(cluster, target("n", "a"), sink=sink)["n"]) == 1
    assert cluster.execs == ["a"]
    assert sink.probes["n"].place == "driver pod gpu-operator/a"
    assert sink.probes["n"].lines[LISTING] == "nvidia-smi -L"


def test_a_pod_without_a_shell_is_asked_command_by_command(here: Any) -> None:
    cluster = Cluster({"a": no_shell(here(sliced().state))})
    assert gpus(looked(cluster, target("n", "a"))["n"]) == 1


def test_a_pod_that_lost_its_devices_gives_way_to_the_next(here: Any) -> None:
    bad = here(sliced().failing(faults.NVML_UNKNOWN).state)
    cluster = Cluster({"a": bad, "b": here(sliced().state)})
    assert gpus(looked(cluster, target("n", "a", "b"))["n"]) == 1
    assert cluster.execs == ["a", "b"]


def test_what_the_only_pod_said_is_what_there_is(here: Any) -> None:
    cluster = Cluster({"a": here(sliced().failing(faults.NVML_UNKNOWN).state)})
    state = looked(cluster, target("n", "a"))["n"]
    assert isinstance(state, Known)
    assert state.value.said


def test_a_node_that_hangs_costs_itself_alone(here: Any) -> None:
    cluster = Cluster({"a": lambda _: None, "b": here(sliced().state)})
    found = looked(cluster, target("slow", "a"), target("quick", "b"))
    assert reason(found["slow"]) is Reason.TIMEOUT
    assert gpus(found["quick"]) == 1


def test_a_node_that_is_not_to_be_tried_is_not(here: Any) -> None:
    cluster = Cluster({"a": here(sliced().state)})
    down = Target("n", target("n", "a").places, why_not="not tried: the node is not Ready, since 3 h")
    state = looked(cluster, down)["n"]
    assert reason(state) is Reason.NOT_ASKED
    assert "since 3 h" in str(state)
    assert cluster.execs == []


def test_without_permission_nothing_is_tried(here: Any) -> None:
    cluster = Cluster({"a": here(sliced().state)}, forbidden=frozenset({"create pods/exec"}))
    assert reason(looked(cluster, target("n", "a"))["n"]) is Reason.FORBIDDEN
    assert cluster.execs == []


def test_none_means_none(here: Any) -> None:
    cluster = Cluster({"a": here(sliced().state)})
    assert reason(looked(cluster, target("n", "a"), mode="none")["n"]) is Reason.NOT_ASKED
    assert cluster.execs == []


# Debug pods


def printed(here: Any, state: NodeState) -> Callable[[str], str]:
    run = here(state)

    def log(script: str) -> str:
        stdout, stderr, _ = run(["sh", "-c", script])
        return str(stdout + stderr)

    return log


def test_auto_makes_no_pod_where_nobody_can_be_asked(here: Any) -> None:
    cluster = Cluster()
    assert reason(looked(cluster, target("n"), mode="auto")["n"]) is Reason.NOT_ASKED
    assert cluster.made == {}


@pytest.mark.parametrize(("agrees", "pods"), [(True, 2), (False, 0)])
def test_auto_asks_once_in_words(here: Any, agrees: bool, pods: int) -> None:
    questions: list[str] = []

    def ask(question: str, patience: float) -> bool:
        assert 0 < patience <= 15
        questions.append(question)
        return agrees

    cluster = Cluster(log=printed(here, sliced().state))
    found = looked(cluster, target("a"), target("b"), mode="auto", ask=ask)
    assert len(questions) == 1
    assert "2 nodes" in questions[0]
    assert len(cluster.made) == pods
    assert sorted(cluster.deleted) == sorted(cluster.made)
    assert all(isinstance(state, Known) is agrees for state in found.values())


def test_a_debug_pod_is_pinned_bounded_labelled_and_gone(here: Any) -> None:
    cluster = Cluster(log=printed(here, sliced().state))
    assert gpus(looked(cluster, target("n"), mode="debug", namespace="probes")["n"]) == 1
    ((name, pod),) = cluster.made.items()
    spec = pod["spec"]
    assert spec["nodeName"] == "n"
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["activeDeadlineSeconds"] == 40
    assert spec["containers"][0]["volumeMounts"][0]["readOnly"] is True
    assert pod["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "gpuctl"
    assert cluster.deleted == [name]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}}
                ],
            },
            "ErrImagePull: no such host",
        ),
        ({"phase": "Failed", "reason": "OutOfpods", "message": "too many"}, "OutOfpods: too many"),
    ],
)  # fmt: skip
def test_a_pod_that_can_t_run_says_why_and_is_gone(state: Mapping[str, Any], said: str) -> None:
    cluster = Cluster(state=state)
    found = looked(cluster, target("n"), mode="debug")["n"]
    assert reason(found) is Reason.SERVER_ERROR
    assert said in str(found)
    assert sorted(cluster.deleted) == sorted(cluster.made)


def test_a_refused_pod_says_which_label_is_missing() -> None:
    message = 'pods "x" is forbidden: violates PodSecurity "baseline:latest": privileged'
    body = {"kind": "Status", "message": message, "reason": "Forbidden"}
    cluster = Cluster(refuses=Reply(403, json.dumps(body).encode()))
    found = looked(cluster, target("n"), mode="debug")["n"]
    assert reason(found) is Reason.FORBIDDEN
    assert "pod-security.kubernetes.io/enforce=privileged" in str(found)


def test_pods_of_dead_runs_are_swept_and_young_ones_left(here: Any) -> None:
    def pod(name: str, made: str) -> Mapping[str, Any]:
        labels = {"gpuctl.dev/run": "another"}
        metadata = {"name": name, "creationTimestamp": made, "labels": labels}
        return {"metadata": metadata, "spec": {"activeDeadlineSeconds": 60}}

    cluster = Cluster(
        log=printed(here, sliced().state),
        left=(pod("old", "2020-01-01T00:00:00Z"), pod("young", "2999-01-01T00:00:00Z")),
    )
    told: list[str] = []
    looked(cluster, target("n"), mode="debug", tell=told.append)
    assert "old" in cluster.deleted
    assert "young" not in cluster.deleted
    assert any("deleted 1" in line for line in told)


def test_one_line_says_who_looks_where_and_how(here: Any) -> None:
    told: list[str] = []
    cluster = Cluster({"a": here(sliced().state)})
    looked(cluster, target("n", "a"), target("m"), tell=told.append)
    assert told == ["looking into nodes as ada: 1 by exec, 1 have no pod with nvidia-smi"]


# The script


def test_answers_are_taken_apart_by_their_marks() -> None:
    stdout = "noise\nm begin a\nline\n\nm end a 0\n\nm begin b\nm end b 9\n\nm begin c\ncut"
    found = taken_apart(stdout, "\nm begin b\noops\n\nm end b\n", "m")
    assert found == {"a": Output("line\n"), "b": Output("", "oops\n", 9)}


def test_a_closed_prober_makes_no_more_pods() -> None:
    cluster = Cluster()
    connection, deadline = cast("Connection", cluster), Deadline.after(5)
    prober = Prober(connection, deadline, NoSink(), Reviews(connection, deadline), Probing(mode="debug"))
    prober.close()
    (state,) = prober.commands([(LISTING, parse_listing)], [target("n")])
    assert isinstance(state, Known)
    assert cluster.made == {}
    with pytest.raises(NotKnown):
        _ = state.value["n"]


def test_more_nodes_than_go_at_once_wait_their_turn(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "AT_ONCE", 2)
    run, now, most = here(sliced().state), [0], [0]
    lock = threading.Lock()

    def counted(command: list[str]) -> Answer:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        answer: Answer = run(command)
        with lock:
            now[0] -= 1
        return answer

    names = [f"n{number}" for number in range(7)]
    found = looked(Cluster(dict.fromkeys(names, counted)), *(target(name, name) for name in names))
    assert {name: gpus(state) for name, state in found.items()} == dict.fromkeys(names, 1)
    assert most[0] == 2


def test_a_mistake_of_our_own_costs_its_node_alone(here: Any) -> None:
    def broken(_: list[str]) -> Answer:
        raise ZeroDivisionError

    found = looked(Cluster({"a": broken, "b": here(sliced().state)}), target("n", "a"), target("m", "b"))
    assert reason(found["n"]) is Reason.INTERNAL
    assert gpus(found["m"]) == 1
