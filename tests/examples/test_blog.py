"""What people copy from the web is judged: each mistake is found, and nothing else is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.program import EXAMPLES, gpuctl

BLOG = EXAMPLES / "blog"
MISTAKES = {"RFI020", "RFI030", "RFI031", "CQG045", "CQG071", "CQG074"}


CHECKS = ("flavor-impact", "queue-growth")


def codes(folder: Path, *checks: str) -> set[str]:
    """The codes of all findings in a folder, whatever their severity."""
    report = json.loads(gpuctl("check", *checks, "--from", str(folder), "-o", "json").stdout)
    assertions = [each for check in report["checks"] for each in check["assertions"]]
    assert {each["verdict"] for each in assertions} <= {"pass", "fail", "not-proven", "not-applicable"}
    return {finding["code"] for each in assertions for finding in each["findings"]}


def test_every_mistake_is_found_and_nothing_else() -> None:
    assert codes(BLOG) == MISTAKES
    assert gpuctl("check", "--from", str(BLOG)).returncode == 1


@pytest.mark.parametrize(
    ("file", "mistake", "corrected", "silences", "shows"),
    [
        ("queues.yaml", "        borrowingLimit: 7\n", "", {"RFI031"}, set()),
        ("flavor.yaml", '    kueue.x-k8s.io/reclaimable: "true"\n', "    {}\n", {"RFI030"}, set()),
        ("job.yaml", "    kueue.x-k8s.io/requests: nvidia.com/mig-1g.5gb=1\n", "    {}\n", {"CQG045"}, set()),
        (
            "flavor.yaml",
            "nvidia.com/mig.config: 1g.5gb",
            "nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
            {"CQG071", "CQG074"},
            {"CQG075"},  # the next mistake: under this node's strategy the resource has another name
        ),
    ],
)
def test_each_mistake_corrected_is_silent(
    tmp_path: Path, file: str, mistake: str, corrected: str, silences: set[str], shows: set[str]
) -> None:
    shutil.copytree(BLOG, tmp_path / "blog")
    path = tmp_path / "blog" / "resources" / file
    text = path.read_text(encoding="utf-8")
    assert mistake in text
    path.write_text(text.replace(mistake, corrected), encoding="utf-8")
    assert codes(tmp_path / "blog", *CHECKS) == MISTAKES - silences | shows


def test_what_is_not_there_to_judge_is_said_in_words() -> None:
    report = json.loads(gpuctl("check", "kueue-webhooks", "--from", str(BLOG), "-o", "json").stdout)
    reasons = {each["reason"] for each in report["checks"][0]["assertions"]}
    assert {each.removeprefix("nothing to judge: ") for each in reasons if "nothing to judge" in each} == {
        "no API services of Kueue",
        "no customresourcedefinitions.apiextensions.k8s.io of Kueue itself",
    }


def test_the_corrected_page_is_clean(tmp_path: Path) -> None:
    """The manifests that docs/flavors.md gives in their place."""
    shutil.copytree(BLOG, tmp_path / "blog")
    page = (EXAMPLES.parent / "docs" / "flavors.md").read_text(encoding="utf-8")
    manifests = page.partition("```yaml\n")[2].partition("```")[0]
    resources = tmp_path / "blog" / "resources"
    for name in ("flavor.yaml", "queues.yaml", "job.yaml"):
        (resources / name).unlink()
    (resources / "corrected.yaml").write_text(manifests, encoding="utf-8")
    assert codes(tmp_path / "blog", *CHECKS) == set()
