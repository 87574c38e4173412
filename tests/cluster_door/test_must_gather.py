"""A tree as `oc adm must-gather` lays it out, read as a snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from gpuctl.audit.judge import Verdict, judge
from gpuctl.checks.kueue_webhooks import CHECK
from gpuctl.cluster.snapshot import SnapshotReader, open_snapshot
from gpuctl.facts.gather import gather
from gpuctl.facts.objects import Deployment, Pod, Service
from gpuctl.facts.state import Known, Reason, Unknown
from tests.builders.kueue import Cluster, healthy

IMAGE = "quay-io-openshift-release-dev-ocp-v4-0-art-dev-sha256-0d7b"
OTHERS_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "dns", "namespace": "openshift-dns"},
    "spec": {"containers": []},
}


def plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}{'es' if lower.endswith('s') else 's'}"


def tree(folder: Path, cluster: Cluster, leave_out: Collection[str] = ()) -> Path:
    """The objects, where must-gather puts them; those of the namespaces `leave_out` were not gathered."""
    root = folder / "must-gather.local.5" / IMAGE
    lists: dict[Path, list[Any]] = defaultdict(list)
    for item in [*cluster.items, OTHERS_POD]:
        group = item["apiVersion"].rpartition("/")[0] or "core"
        namespace = item["metadata"].get("namespace")
        if namespace and namespace not in leave_out:
            lists[root / "namespaces" / namespace / group / f"{plural(item['kind'])}.yaml"].append(item)
        elif not namespace:
            place = root / "cluster-scoped-resources" / group / plural(item["kind"])
            write(place / f"{item['metadata']['name']}.yaml", item)
    for path, items in lists.items():
        write(path, {"apiVersion": items[0]["apiVersion"], "kind": f"{items[0]['kind']}List", "items": items})
    write(root / "namespaces" / "openshift-dns" / "core" / "services.yaml", EMPTY_SERVICES)
    (root / "namespaces" / "openshift-dns" / "pods" / "dns").mkdir(parents=True)
    write(root / "namespaces" / "openshift-dns" / "pods" / "dns" / "dns.yaml", OTHERS_POD)
    (root / "version").write_text("4.16.0\n")
    (root / "event-filter.html").write_text("<html></html>")
    (root.parent / "timestamp").write_text("2026-11-30 10:00:00 +0000 UTC\n")
    (root / "gather.logs").write_text("gathering\n")
    return folder / "must-gather.local.5"


EMPTY_SERVICES = {"apiVersion": "v1", "kind": "ServiceList", "items": []}


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{yaml.safe_dump(content)}")


def verdicts(reader: SnapshotReader) -> dict[str, Verdict]:
    facts = gather(CHECK.needs, reader, {})
    return {each.id: judge(each, facts).verdict for each in CHECK.assertions}


def test_a_healthy_cluster_is_judged(tmp_path: Path) -> None:
    found = verdicts(open_snapshot(tree(tmp_path, healthy())))
    required = {each.id for each in CHECK.assertions if each.strength == "required"}
    assert {found[name] for name in required} == {Verdict.PASS}, found


def test_a_broken_one_is_found(tmp_path: Path) -> None:
    cluster = healthy()
    for webhook in cluster.one("MutatingWebhookConfiguration")["webhooks"]:
        webhook["clientConfig"].pop("caBundle", None)
    assert verdicts(open_snapshot(tree(tmp_path, cluster)))["usable-ca-bundles"] is Verdict.FAIL


def test_a_namespace_that_was_not_gathered_is_unknown_and_no_false_alarm(tmp_path: Path) -> None:
    found = verdicts(open_snapshot(tree(tmp_path, healthy(), leave_out={"kueue-system"})))
    assert found["answering-manager"] is Verdict.UNKNOWN
    assert found["usable-ca-bundles"] is Verdict.PASS, "webhook configurations belong to no namespace"
    assert Verdict.FAIL not in found.values()


def test_what_is_held_of_a_kind_is_known_and_the_other_namespaces_are_a_gap(tmp_path: Path) -> None:
    reader = open_snapshot(tree(tmp_path, healthy(), leave_out={"kueue-system"}))
    (pods,) = reader.objects(Pod.of, "", [Pod])
    assert isinstance(pods, Known)
    assert [ref.name for ref, _ in pods.value.known()] == ["dns"]
    assert [gap.reason for gap in pods.value.gaps()] == [Reason.NOT_ASKED]
    assert not list(reader.within(Service, ["openshift-dns"]).value.gaps())  # type: ignore[union-attr]


def test_a_kind_that_does_not_appear_was_not_captured(tmp_path: Path) -> None:
    reader = open_snapshot(tree(tmp_path, Cluster(healthy().shape)))
    (deployments,) = reader.objects(Deployment.of, "", [Deployment])
    assert isinstance(deployments, Unknown)
