"""Roles of least privilege as manifests, with a comment per rule that names what needs it.

Whatever is printed has the account in its name, and what it is for: so what is applied for one account or
check takes nothing from another, and gives it nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent, wrap

from gpuctl.audit.permissions import Grant, Purpose
from gpuctl.runbook.permissions import Permissions

WIDTH = 110
_SAY_MORE = "say more with it"
_WITH_IT = "can be left out; with it"

_NAMESPACE = """\
apiVersion: v1
kind: Namespace
metadata:
  name: {account.namespace}
---
"""
_ACCOUNT = """\
apiVersion: v1
kind: ServiceAccount
metadata:
  namespace: {account.namespace}
  name: {account.name}
"""
_ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata:
  name: {name}{place}
rules:{rules}
"""
_BINDING = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}Binding
metadata:
  name: {name}{place}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {kind}
  name: {name}
subjects:
- kind: ServiceAccount
  namespace: {account.namespace}
  name: {account.name}
"""
_RULE = """
{comment}
- apiGroups: ["{rule.group}"]
  resources: ["{rule.resource}"]
  verbs: ["{rule.verb}"]"""
_FOR_PROOFS = {
    Purpose.DRY_RUN: (
        "gpuctl-proof",
        "# For `gpuctl check --dry-run`: without it, proofs are not made. Apply it with the policy above.\n",
    ),
    Purpose.PROBE: (
        "gpuctl-probe",
        "# For `gpuctl check --probe` and `--vllm-exec`: it can run commands in pods, for proofs alone.\n",
    ),
    Purpose.PORT_FORWARD: (
        "gpuctl-port-forward",
        "# For `gpuctl check --probe`: it can connect to ports of pods. Better a Role where Kueue runs.\n",
    ),
    Purpose.PROXY: (
        "gpuctl-proxy",
        "# For `gpuctl check --vllm-http`: it can send requests to pods. Better a Role where engines run.\n",
    ),
    Purpose.SECRET: (
        "gpuctl-webhook-secret",
        "# For `gpuctl check --read-webhook-secret`. Better a Role in the namespace of that Secret.\n",
    ),
}
_POLICY = """\
# {why}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {name}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
{resources}
  matchConditions:
  - name: gpuctl
    expression: request.userInfo.username == "{account.user}"
{rules}---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {name}
spec:
  policyName: {name}
  validationActions: [Deny]
"""
_DRY_RUNS_ONLY = """\
  validations:
  - expression: has(request.dryRun) && request.dryRun
    message: this account may do dry runs only
"""
_NODES = """\
- apiGroups: [""]
  apiVersions: ["v1"]
  operations: ["UPDATE"]
  resources: ["nodes", "nodes/*"]"""
_NODE_FIELDS_ONLY = """\
  variables:
  - name: labelsBefore
    expression: "oldObject.metadata.?labels.orValue({})"
  - name: labelsAfter
    expression: "object.metadata.?labels.orValue({})"
  - name: labels
    expression: '["nvidia.com/mig.config", "k8saas.nvidia.com/ManagedByNVSentinel"]'
  - name: notesBefore
    expression: "oldObject.metadata.?annotations.orValue({})"
  - name: notesAfter
    expression: "object.metadata.?annotations.orValue({})"
  - name: taintsBefore
    expression: >-
      oldObject.spec.?taints.orValue([])
      .filter(t, !(t.key.startsWith("gpuctl.dev/") && t.effect == "NoSchedule"))
  - name: taintsAfter
    expression: >-
      object.spec.?taints.orValue([])
      .filter(t, !(t.key.startsWith("gpuctl.dev/") && t.effect == "NoSchedule"))
  validations:
  - expression: >-
      variables.labelsAfter.all(k, k in variables.labels || (k in variables.labelsBefore &&
      (variables.labelsBefore[k] == variables.labelsAfter[k] || (k.startsWith("nvidia.com/gpu.deploy.") &&
      [variables.labelsBefore[k], variables.labelsAfter[k]].exists(v, v.startsWith("paused-for-")))))) &&
      variables.labelsBefore.all(k, k in variables.labels || k in variables.labelsAfter)
    message: >-
      of a node's labels this account may change nvidia.com/mig.config, NVSentinel's, those of paused operands
  - expression: >-
      variables.notesAfter.all(k, k.startsWith("gpuctl.dev/") || (k in variables.notesBefore &&
      variables.notesBefore[k] == variables.notesAfter[k])) &&
      variables.notesBefore.all(k, k.startsWith("gpuctl.dev/") || k in variables.notesAfter)
    message: of a node's annotations this account may change its own only
  - expression: >-
      variables.taintsBefore == variables.taintsAfter &&
      object.spec.?podCIDR == oldObject.spec.?podCIDR &&
      object.spec.?podCIDRs == oldObject.spec.?podCIDRs &&
      object.spec.?providerID == oldObject.spec.?providerID &&
      object.spec.?configSource == oldObject.spec.?configSource &&
      object.spec.?externalID == oldObject.spec.?externalID
    message: of a node's spec this account may change unschedulable and its own NoSchedule taints only
  - expression: >-
      object.metadata.?finalizers == oldObject.metadata.?finalizers &&
      object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences &&
      object.?status == oldObject.?status
    message: this account may change neither a node's status nor its finalizers or owners
"""
_RESOURCE = """\
- apiGroups: ["{rule.group}"]
  apiVersions: ["*"]
  operations: ["CREATE"]
  resources: ["{rule.resource}"]"""


@dataclass(frozen=True, slots=True)
class Account:
    """The service account that the roles are bound to."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        """Its name towards the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


def manifests(
    grants: Sequence[Grant], account: Account, namespace: str | None = None, check: str = ""
) -> str:
    """Everything to apply, as YAML. With a namespace: what a tenant needs there, and nothing cluster-wide.
    `check`: the one that it is for; empty for all."""
    part = f"-{check}" if check else ""
    by_purpose = {purpose: [each for each in grants if each.purpose is purpose] for purpose in Purpose}
    documents = [
        _account(account, namespace),
        _role(by_purpose[Purpose.READING], f"gpuctl-check{part}", account, namespace),
    ]
    if not namespace:
        if tried := by_purpose[Purpose.DRY_RUN]:
            # before the role: it takes a moment to hold
            documents.append(_dry_runs_only(tried, account, part))
        documents += [
            f"{note}{_role(by_purpose[purpose], f'{name}{part}', account, None)}"
            for purpose, (name, note) in _FOR_PROOFS.items()
            if by_purpose[purpose]
        ]
    return "---\n".join(documents)


_SECRETS = "secrets"
_EXEC = "pods/exec"
_OF_EXEC = """\
# May be left out: then nothing is told of processes on GPUs that no pod explains. This permits commands in
# any pod. Better a Role in the namespace of NVIDIA's pods, in which nvidia-smi is run.
"""
_OF_SECRETS = """\
# May be left out: then a person says that the Secret is there. The runbook asks for its metadata alone, and
# this permits more. Better a Role in the namespace of that Secret, for its name alone.
"""


def runbook_manifests(book: str, needs: Permissions, account: Account, *, nodes: bool) -> str:
    """What a runbook takes, as YAML: the account's namespace is the one of locks and journals. With `nodes` a
    policy beside it, which holds the account to the fields of nodes that runbooks change. What a flag takes
    is a role of its own: the others are the same with it and without. So is what reaches far and can be left
    out."""
    name = f"gpuctl-{book}"
    secrets = [each for each in needs.cluster if each.rule.resource == _SECRETS]
    commands = [each for each in needs.cluster if each.rule.resource == _EXEC and not each.assertions]
    documents = [_account(account, None)]
    if nodes:  # before the role: it takes a moment to hold
        documents.append(_node_fields_only(account))
    documents += [
        _role(grants, f"{name}{part}", account, namespace, _WITH_IT)
        for part, grants, namespace in (
            ("", [each for each in needs.cluster if each not in (*secrets, *commands)], None),
            *((flag.removeprefix("-"), grants, None) for flag, grants in needs.flags.items()),
            ("-state", needs.state, account.namespace),
            ("-events", needs.events, needs.events_in or None),
        )
        if grants
    ]
    documents += [
        f"{note}{_role(grants, f'{name}-{part}', account, None, _WITH_IT)}"
        for part, note, grants in (("secret", _OF_SECRETS, secrets), ("exec", _OF_EXEC, commands))
        if grants
    ]
    return "---\n".join(documents)


def _node_fields_only(account: Account) -> str:
    why = (
        "Patching nodes is what the role below permits; this holds the account to what runbooks change of "
        "them."
    )
    return _policy(node_policy(account), account, why, _NODES, _NODE_FIELDS_ONLY)


def node_policy(account: Account) -> str:
    """The policy's name: one for each account, whatever runbooks it is for."""
    return of_account("gpuctl-node-fields", account)


def of_account(name: str, account: Account) -> str:
    """What something for this account is called. Namespaces have no dots, so no other account's is."""
    return f"{name}.{account.namespace}.{account.name}"


def _account(account: Account, namespace: str | None) -> str:
    """The account, and its namespace unless that is the tenant's own, which is there."""
    its_namespace = "" if account.namespace == namespace else _NAMESPACE.format(account=account)
    return its_namespace + _ACCOUNT.format(account=account)


def _role(
    grants: Iterable[Grant], name: str, account: Account, namespace: str | None, more: str = _SAY_MORE
) -> str:
    name = of_account(name, account)
    kind = "Role" if namespace else "ClusterRole"
    place = f"\n  namespace: {namespace}" if namespace else ""
    within = [grant for grant in grants if grant.rule.namespaced or not namespace]
    beyond = [grant.rule for grant in grants if not grant.rule.namespaced and namespace]
    rules = "".join(_rule(grant, more) for grant in within) or " []"
    role = _ROLE.format(kind=kind, name=name, place=place, rules=rules)
    left_out = "".join(f"# left out, because it is cluster-wide: {rule}\n" for rule in beyond)
    binding = _BINDING.format(kind=kind, name=name, place=place, account=account)
    return f"{role}{left_out}---\n{binding}"


def _rule(grant: Grant, more: str) -> str:
    comment = "\n".join(f"# {line}" for line in _comment(grant, more))
    return _RULE.format(comment=comment, rule=grant.rule)


def _comment(grant: Grant, more: str) -> Iterator[str]:
    """Who can't be judged without the permission, and who only says more with it."""
    if grant.assertions:
        yield from wrap(", ".join(grant.assertions), WIDTH, break_on_hyphens=False)
    if grant.more:
        yield from wrap(f"{more}: {', '.join(grant.more)}", WIDTH, break_on_hyphens=False)


def _dry_runs_only(grants: Iterable[Grant], account: Account, part: str) -> str:
    """The account may create these kinds, but only in dry runs: so the proof can change nothing."""
    why = "Creating is what the role below permits; this lets the account do it in dry runs only."
    resources = "\n".join(_RESOURCE.format(rule=grant.rule) for grant in grants)
    return _policy(dry_run_policy(account, part), account, why, resources, _DRY_RUNS_ONLY)


def dry_run_policy(account: Account, part: str = "") -> str:
    """The policy's name: one for each account and role, or a second one would free the first."""
    return of_account(f"gpuctl-dry-runs-only{part}", account)


def _policy(name: str, account: Account, why: str, resources: str, rules: str) -> str:
    """A policy of this account alone, and its binding. `rules`: its variables and validations."""
    return _POLICY.format(
        name=name, account=account, why=why, resources=indent(resources, "    "), rules=rules
    )
