"""What a Prometheus tells of an engine, by pod and by MIG instance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gpuctl.facts.kinds import Ref
from gpuctl.facts.metrics import Labels, Points, labels
from gpuctl.facts.state import Each, Inapplicable, Known, Reason, Unknown
from gpuctl.vllm.objects import EnginePod
from gpuctl.vllm.utilisation import ENGINE_ACTIVE, METRICS, of_engine
from tests.builders import vllm as make
from tests.checks.judging import CHAT
from tests.checks.judging import judged_engines as judged

POD = Ref(EnginePod.of, CHAT, "serving")
START = datetime(2026, 11, 30, 9, tzinfo=UTC)


def points(*values: float) -> Points:
    return tuple((START + timedelta(minutes=number), value) for number, value in enumerate(values))


def series(**own: str) -> Labels:
    return labels({"__name__": ENGINE_ACTIVE, "namespace": "serving", "pod": CHAT, **own})


def test_the_activity_of_each_instance() -> None:
    found = Each.of(
        {
            series(gpu="0", GPU_I_ID="7", GPU_I_PROFILE="1g.10gb"): points(0.2, 0.6),
            series(pod="other"): points(1.0),
            series(namespace="other"): points(1.0),
        }
    )
    (usage,) = of_engine(Known(found), POD, "vllm")
    assert (usage.mean, usage.peak) == (0.4, 0.6)
    assert usage.device == {"gpu": "0", "GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb"}


def test_the_exporters_own_pod_is_not_the_engines() -> None:
    moved = series(
        namespace="gpu-operator", pod="dcgm-exporter-x", exported_namespace="serving", exported_pod=CHAT
    )
    assert len(of_engine(Known(Each.of({moved: points(0.5)})), POD, "vllm")) == 1
    own = series(exported_namespace="serving", exported_pod="other")
    assert of_engine(Known(Each.of({own: points(0.5)})), POD, "vllm") == ()


def test_counters_count() -> None:
    preempted = series(__name__="vllm:num_preemptions_total")
    (usage,) = of_engine(Known(Each.of({preempted: points(5, 9, 2)})), POD, "vllm")
    assert usage.counted == 6


def test_it_is_told_of_each_engine_where_there_is_a_prometheus() -> None:
    found = judged(make.pod(), series={METRICS.query: Each.of({series(gpu="0"): points(0.9)})})
    assert found.engine["pastHour"] == [
        {"metric": ENGINE_ACTIVE, "device": {"gpu": "0"}, "mean": 0.9, "peak": 0.9}
    ]
    assert "pastHour" not in judged(make.pod()).engine
    assert of_engine(Inapplicable("none"), POD, "vllm") == ()


def test_engines_of_one_pod_are_told_apart() -> None:
    found = Known(Each.of({series(container="a", gpu="0"): points(0.1), series(gpu="1"): points(0.2)}))
    assert [each.device["gpu"] for each in of_engine(found, POD, "a")] == ["0", "1"]
    assert [each.device["gpu"] for each in of_engine(found, POD, "b")] == ["1"]


def test_a_prometheus_that_could_not_be_asked_is_no_idle_gpu() -> None:
    refused = Unknown(Reason.UNREACHABLE, "connection refused", "metrics")
    engine = judged(make.pod(), series=refused).engine
    assert "pastHour" not in engine
    assert "connection refused" in engine["pastHourUnknown"]
    assert "pastHourUnknown" not in judged(make.pod()).engine
