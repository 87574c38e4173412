"""Fifty thousand Workloads in three hundred queues, judged from a snapshot: in time, and in little memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kueue.large import write

PROGRAM = Path(sys.executable).with_name("gpuctl")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_large_cluster_takes_little(tmp_path: Path) -> None:
    write(tmp_path, workloads=50_000, queues=300)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(PROGRAM), "check", "queue-growth", "--from", str(tmp_path), "-q", "--policy", "default"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 1, result.stderr
    assert result.stdout.count("CQG001") > 200
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert busy < 10, f"{busy:.1f} s of CPU"
    assert after.ru_maxrss < 400 * 1024, f"{after.ru_maxrss // 1024} MiB"
