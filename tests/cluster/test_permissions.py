"""The printed roles on a real API server: enough, no rule too many, and dry runs are all they can create."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import pytest
import yaml

from gpuctl.audit.catalogue import catalogue
from gpuctl.audit.permissions import Purpose, grants
from gpuctl.audit.policy import BUILT_IN
from gpuctl.audit.run import Request, audit
from gpuctl.checks.kueue_webhooks import CHECK
from gpuctl.cli.doors import open_door
from gpuctl.cluster.connection import Access
from gpuctl.cluster.consent import Consent, DryRuns
from gpuctl.cluster.probe import Probing

from .bed import Bed
from .bed.kubectl import Kubectl
from .bed.wait import wait
from .gpuctl import Answer, check, run

NAME = CHECK.id
GRANTS = {str(grant.rule): grant for grant in grants([CHECK])}
RULES = list(GRANTS)
TRYING = "create resourceflavors.kueue.x-k8s.io"
NOT_JUDGED = {"unknown", "not-proven"}
QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "read-me", "namespace": "default"},
    "spec": {"clusterQueue": "none"},
}
FLAVOR = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"generateName": "from-a-preflight-", "labels": {"made-for": "preflight"}},
}
ENGINE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "llm"},
    "spec": {
        "nodeSelector": {"no-such": "node"},
        "containers": [
            {"name": "vllm", "image": "vllm/vllm-openai:v0.11.0", "args": ["--model", "a/b"]},
        ],
    },
}


# Everything is looked at that a permission is for. A handshake is made only where no dry run may tell.
PROVING = Consent(dry_run=DryRuns.ALL, webhook_secret=True)
LOGIN = Lock()
SHAKING = Consent(dry_run=DryRuns.NONE, webhook_secret=True)


# The rules of the printed role, one by one


@dataclass(frozen=True)
class Printed:
    """A rule of a role as it is printed, and the assertions that its comment names as depending on it."""

    rule: dict[str, Any]
    names: frozenset[str]

    def __str__(self) -> str:
        group = self.rule["apiGroups"][0]
        return f"{self.rule['verbs'][0]} {self.rule['resources'][0]}" + (f".{group}" if group else "")


def printed(text: str) -> list[Printed]:
    """Reads the roles with their comments."""
    found = re.findall(r"((?:^# .*\n)+)((?:^- apiGroups.*\n(?:^  .*\n?)+))", text, re.MULTILINE)
    return [Printed(yaml.safe_load(rule)[0], _named(comment)) for comment, rule in found]


def _named(comment: str) -> frozenset[str]:
    depending = comment.replace("\n# ", " ").partition("say more with it:")[0]
    return frozenset(re.findall(rf"{NAME}/([\w-]+)", depending))


@dataclass(frozen=True)
class Runs:
    """The answers to the administrator, the whole role, the one for reading, and without each rule."""

    admin: Answer
    whole: Answer
    shaking: Answer
    reading: Answer
    without: dict[str, tuple[Printed, Answer]]


def consent(rule: str) -> Consent:
    return SHAKING if GRANTS[rule].purpose is Purpose.PORT_FORWARD else PROVING


def judged(kubeconfig: Path, consent: Consent) -> Answer:
    """What `gpuctl check` answers to this user, in this process: two dozen of them start no Python."""
    access = Access(kubeconfig=str(kubeconfig))
    request = Request(catalogue().select([NAME]), BUILT_IN["default"])
    with LOGIN:  # a program logs in once; the client's certificate files are those of one login
        door = open_door(access, None, None, 120, consent=consent, probing=Probing("exec"))
    with door:
        report = audit(request, door.reader, door.source)
    return Answer(report.outcome.exit_code, msgspec.to_builtins(report), "")


@pytest.fixture(scope="module")
def runs(bed: Bed) -> Iterator[Runs]:
    """All at once: what is compared is one state of the cluster."""
    rules = printed(run("rbac", "--for", NAME, "--read-webhook-secret").stdout)
    assert sorted(map(str, rules)) == sorted(RULES)
    bed.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(QUEUE))
    names = [f"without-{number}" for number, _ in enumerate(rules)]
    try:
        whole = bed.users.add("whole", [each.rule for each in rules])
        reading = bed.users.add("reading", [each.rule for each in rules if GRANTS[str(each)].reads])
        lacking = [
            bed.users.add(name, [each.rule for each in rules if each is not left_out])
            for name, left_out in zip(names, rules, strict=True)
        ]
        asked = [
            (bed.kubeconfig, PROVING),
            (whole, PROVING),
            (whole, SHAKING),
            (reading, PROVING),
            *((file, consent(str(rule))) for file, rule in zip(lacking, rules, strict=True)),
        ]
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda each: judged(*each), asked))
        yield Runs(
            admin=answers[0],
            whole=answers[1],
            shaking=answers[2],
            reading=answers[3],
            without={str(rule): (rule, answer) for rule, answer in zip(rules, answers[4:], strict=True)},
        )
    finally:
        for name in ("whole", "reading", *names):
            bed.users.remove(name)
        bed.kubectl("delete", "localqueue", "read-me", "--wait=false")


def test_the_printed_role_is_enough(runs: Runs) -> None:
    assert runs.admin.code == 0, runs.admin.findings()
    assert "unknown" not in runs.admin.verdicts().values()
    assert runs.whole.verdicts() == runs.admin.verdicts()
    assert runs.whole.fingerprints() == runs.admin.fingerprints()


def test_without_the_role_for_proofs_the_proofs_are_not_proven_and_the_rest_is_the_same(runs: Runs) -> None:
    proofs = {each.id for each in CHECK.assertions if each.strength == "proof"}
    admin, reading = runs.admin.verdicts(), runs.reading.verdicts()
    changed = {name for name in admin if admin[name] != reading[name]}
    assert changed, "the administrator proves something that reading alone does not"
    assert changed <= proofs
    assert {reading[name] for name in changed} == {"not-proven"}, reading
    assert runs.reading.code == 0, "a proof that is not permitted is no failure"


@pytest.mark.parametrize("rule", RULES)
def test_without_one_rule_exactly_what_it_names_is_not_judged(runs: Runs, rule: str) -> None:
    left_out, answer = runs.without[rule]
    whole = runs.shaking if consent(rule) is SHAKING else runs.whole
    before, after = whole.verdicts(), answer.verdicts()
    changed = {name: after[name] for name in after if after[name] != before[name]}
    if rule == TRYING:
        assert changed.pop("shown-certificate") == "pass", "a handshake tells instead"
    assert set(changed) == left_out.names
    assert set(changed.values()) <= NOT_JUDGED
    assert answer.fingerprints() <= whole.fingerprints(), "what is not seen is no fault"


# The account that the manifests make


def as_account(bed: Bed, namespace: str, folder: Path) -> Path:
    """A kubeconfig of the service account gpuctl in this namespace."""
    token = bed.kubectl("-n", namespace, "create", "token", "gpuctl").strip()
    content = yaml.safe_load(bed.kubeconfig.read_text())
    for user in content["users"]:
        user["user"] = {"token": token}
    file = folder / "account.kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture
def account(bed: Bed, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """The account of `gpuctl rbac`, in a namespace of the test's, with all that is printed for it."""
    manifests = run("rbac", "--for", NAME, "--account", f"{namespace}/gpuctl").stdout
    bed.kubectl("apply", "-f", "-", input=manifests)
    yield as_account(bed, namespace, tmp_path)
    rest = _without_namespace(manifests)
    bed.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=rest)


def _without_namespace(manifests: str) -> str:
    """The namespace is the fixture's, which takes it away itself."""
    return yaml.safe_dump_all(
        each for each in yaml.safe_load_all(manifests) if each["kind"] not in {"Namespace", "ServiceAccount"}
    )


@pytest.fixture
def flavors(bed: Bed) -> Iterator[str]:
    """A ResourceFlavor to create; whatever is created of it is taken away."""
    yield json.dumps(FLAVOR)
    bed.kubectl("delete", "resourceflavors", "-l", "made-for=preflight")


def test_the_account_can_create_in_dry_runs_only(bed: Bed, account: Path, flavors: str) -> None:
    as_it = Kubectl(account)

    def tried(*flags: str) -> str:
        return as_it("create", "-f", "-", "--validate=false", *flags, input=flavors, check=False)

    wait(lambda: "dry runs only" in tried(), 60, "the policy to hold")
    stored = bed.kubectl("get", "resourceflavors", "-o", "name")
    assert "created (server dry run)" in tried("--dry-run=server")
    assert "dry runs only" in tried()
    assert bed.kubectl("get", "resourceflavors", "-o", "name") == stored
    answer = check(NAME, "--dry-run", "flavor", kubeconfig=account)
    assert answer.verdicts()["verified-certificate"] == "pass"


@pytest.mark.usefixtures("account")
def test_the_policy_binds_nobody_else(bed: Bed, flavors: str) -> None:
    assert "created" in bed.kubectl("create", "-f", "-", input=flavors)


def test_can_i_says_yes_to_the_account_and_asks_by_reviews_alone(bed: Bed, account: Path) -> None:
    began = datetime.now(UTC)
    result = run("can-i", "--for", NAME, "-o", "json", kubeconfig=account)
    report = json.loads(result.stdout)
    assert (result.returncode, report["exitCode"]) == (0, 0), result.stderr
    assert {each["allowed"] for each in report["permissions"]} == {"yes"}
    assert len(report["permissions"]) == len(RULES) - 1, "all but the Secret's"
    asked = bed.audit.requests(since=began, user_agent_prefix="gpuctl/")
    assert {(each.verb, each.resource) for each in asked} == {("create", "selfsubjectaccessreviews")}


def test_can_i_names_what_is_missing(bed: Bed, user: Callable[..., Path]) -> None:
    rules = [each.rule for each in printed(run("rbac", "--for", NAME).stdout)]
    some = user("some", [rule for rule in rules if rule["resources"] != ["pods"]])
    result = run("can-i", "--for", NAME, kubeconfig=some)
    assert result.returncode == 1
    (missing,) = [line for line in result.stdout.splitlines() if line.split()[2:3] == ["no"]]
    assert missing.startswith("list pods ")
    assert f"{NAME}: answering-manager, one-release" in missing


# A tenant


@pytest.fixture
def tenant(bed: Bed, namespace: str, tmp_path: Path) -> Path:
    """The account of a tenant, with the role of `gpuctl rbac -n` and nothing cluster-wide."""
    manifests = run("rbac", "-n", namespace).stdout
    kinds = {each["kind"] for each in yaml.safe_load_all(manifests)}
    assert kinds == {"ServiceAccount", "Role", "RoleBinding"}
    bed.kubectl("apply", "-f", "-", input=manifests)
    bed.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(ENGINE))
    return as_account(bed, namespace, tmp_path)


def test_a_tenant_is_judged_within_the_namespace(
    bed: Bed, tenant: Path, namespace: str, tmp_path: Path
) -> None:
    began = datetime.now(UTC)
    stored = tmp_path / "tenant.tar.gz"
    live = check("-n", namespace, "--fail-on", "never", "--save", str(stored), kubeconfig=tenant)
    gaps = [gap for each in assertions(live) for gap in each["unknown"]]
    assert not [gap for gap in gaps if gap["reason"] in {"forbidden", "internal-error"}]
    subjects = [each["object"]["name"] for one in live.report["checks"] for each in one["subjects"]]
    assert "llm" in subjects, "the tenant's own engine is judged"
    reasons = {each["reason"] for each in assertions(live) if each["verdict"] == "not-applicable"}
    assert f"outside of the namespace {namespace}" in reasons
    assert live.report["run"]["source"]["name"].endswith(f", namespace {namespace}")

    user = f"system:serviceaccount:{namespace}:gpuctl"
    asked = bed.audit.requests(since=began, user=user, user_agent_prefix="gpuctl/")
    outside = {each.uri for each in asked if each.resource and each.namespace != namespace}
    assert {uri for uri in outside if "reviews" not in uri} <= {"/api/v1/namespaces/kube-system"}

    again = check("--from", str(stored), "--fail-on", "never")
    assert again.verdicts() == live.verdicts()
    assert again.code == live.code


def assertions(answer: Answer) -> list[dict[str, Any]]:
    return [assertion for each in answer.report["checks"] for assertion in each["assertions"]]


def test_can_i_within_a_namespace(tenant: Path, namespace: str) -> None:
    result = run("can-i", "-n", namespace, "-o", "json", kubeconfig=tenant)
    assert result.stdout, result.stderr
    permissions = json.loads(result.stdout)["permissions"]
    assert result.returncode == 0, result.stdout
    assert {each["allowed"] for each in permissions} == {"yes", "not-applicable"}
    assert run("can-i", "-o", "json", kubeconfig=tenant).returncode == 1, "cluster-wide it may nothing"
