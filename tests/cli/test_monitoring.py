"""The flags that name a Prometheus: what can't be meant is said before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.cli.border import Stop
from gpuctl.cli.monitoring import server
from gpuctl.cluster.web import Server
from tests.cli.program import HEALTHY, gpuctl

URL = "https://prometheus.example:9090"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "token"
    made.write_text("hunter2")
    return made


def test_a_server_with_a_token_and_an_authority(file: Path) -> None:
    assert server("--prometheus", URL, file, file) == Server(URL, file, file)
    assert server("--prometheus", URL, None, None) == Server(URL)
    assert server("--prometheus", "", None, None) is None


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("prometheus:9090", "is an address such as https://host:9090"),
        ("https://me:hunter2@prometheus.example", "takes no user or password"),
        ("http://prometheus.example", "a token is sent over https alone"),
        ("", "--prometheus-token-file needs --prometheus URL"),
    ],
)
def test_what_cannot_be_meant(url: str, says: str, file: Path) -> None:
    with pytest.raises(Stop, match=says) as stopped:
        server("--prometheus", url, file, None)
    assert "hunter2" not in str(stopped.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r"--alertmanager-ca: there is no file .*gone"):
        server("--alertmanager", URL, None, tmp_path / "gone")


def test_every_verb_that_asks_a_prometheus_takes_them(file: Path, tmp_path: Path) -> None:
    for verb in (("check", "--from", HEALTHY), ("snapshot", tmp_path / "s"), ("vllm", "--from", HEALTHY)):
        result = gpuctl(*map(str, verb), "--prometheus-token-file", str(file))
        assert result.returncode == 2
        assert "--prometheus-token-file needs --prometheus URL" in result.stderr
