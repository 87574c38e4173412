"""-n: a tenant's namespace, and nothing beside it."""

from __future__ import annotations

import json

from tests.cli.program import HEALTHY, gpuctl

CHECK = "kueue-webhooks"


def test_a_namespace_of_a_snapshot_is_judged_alone_and_named() -> None:
    whole = gpuctl("check", CHECK, "--from", HEALTHY, "-n", "default", "-o", "json")
    content = json.loads(whole.stdout)
    assert whole.returncode == 3, "nothing of this check lies in one namespace"
    assert content["run"]["source"]["name"] == f"{HEALTHY}, namespace default"
    reasons = {each["reason"] for check in content["checks"] for each in check["assertions"]}
    assert reasons == {"outside of the namespace default"}
