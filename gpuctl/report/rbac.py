"""Roles of least privilege as manifests, with a comment per rule that names what needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent, wrap

from gpuctl.audit.permissions import Grant, Purpose
from gpuctl.facts.kinds import Rule

WIDTH = 110

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
        "# For `gpuctl check --probe`: it can run commands in pods. Without it, proofs are not made.\n",
    ),
    Purpose.PORT_FORWARD: (
        "gpuctl-port-forward",
        "# For `gpuctl check --probe`: it can connect to ports of pods. Better a Role where Kueue runs.\n",
    ),
    Purpose.SECRET: (
        "gpuctl-webhook-secret",
        "# For `gpuctl check --read-webhook-secret`. Better a Role in the namespace of that Secret.\n",
    ),
}
_DRY_RUNS_ONLY = """\
# Creating is what the role below permits; this lets the account do it in dry runs only.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: gpuctl-dry-runs-only
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
{resources}
  matchConditions:
  - name: gpuctl
    expression: request.userInfo.username == "{account.user}"
  validations:
  - expression: has(request.dryRun) && request.dryRun
    message: this account may do dry runs only
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: gpuctl-dry-runs-only
spec:
  policyName: gpuctl-dry-runs-only
  validationActions: [Deny]
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


def manifests(grants: Sequence[Grant], account: Account, namespace: str | None = None) -> str:
    """Everything to apply, as YAML. With a namespace: what a tenant needs there, and nothing cluster-wide."""
    by_purpose = {purpose: [each for each in grants if each.purpose is purpose] for purpose in Purpose}
    documents = [
        _account(account, namespace),
        _role(by_purpose[Purpose.READING], "gpuctl-check", account, namespace),
    ]
    if not namespace:
        if tried := by_purpose[Purpose.DRY_RUN]:
            documents.append(_dry_runs_only(tried, account))  # before the role: it takes a moment to hold
        documents += [
            f"{note}{_role(by_purpose[purpose], name, account, None)}"
            for purpose, (name, note) in _FOR_PROOFS.items()
            if by_purpose[purpose]
        ]
    return "---\n".join(documents)


def _account(account: Account, namespace: str | None) -> str:
    """The account, and its namespace unless that is the tenant's own, which is there."""
    its_namespace = "" if account.namespace == namespace else _NAMESPACE.format(account=account)
    return its_namespace + _ACCOUNT.format(account=account)


def _role(grants: Iterable[Grant], name: str, account: Account, namespace: str | None) -> str:
    kind = "Role" if namespace else "ClusterRole"
    place = f"\n  namespace: {namespace}" if namespace else ""
    within = [grant for grant in grants if grant.rule.namespaced or not namespace]
    beyond = [grant.rule for grant in grants if not grant.rule.namespaced and namespace]
    rules = "".join(_rule(grant) for grant in within) or " []"
    role = _ROLE.format(kind=kind, name=name, place=place, rules=rules)
    left_out = "".join(f"# left out, because it is cluster-wide: {rule}\n" for rule in beyond)
    binding = _BINDING.format(kind=kind, name=name, place=place, account=account)
    return f"{role}{left_out}---\n{binding}"


def _rule(grant: Grant) -> str:
    comment = "\n".join(f"# {line}" for line in _comment(grant))
    return _RULE.format(comment=comment, rule=grant.rule)


def _comment(grant: Grant) -> Iterator[str]:
    """Who can't be judged without the permission, and who only says more with it."""
    if grant.assertions:
        yield from wrap(", ".join(grant.assertions), WIDTH, break_on_hyphens=False)
    if grant.more:
        yield from wrap(f"say more with it: {', '.join(grant.more)}", WIDTH, break_on_hyphens=False)


def _dry_runs_only(grants: Iterable[Grant], account: Account) -> str:
    """The account may create these kinds, but only in dry runs: so the proof can change nothing."""
    resources = "\n".join(_resource(grant.rule) for grant in grants)
    return _DRY_RUNS_ONLY.format(resources=indent(resources, "    "), account=account)


def _resource(rule: Rule) -> str:
    return _RESOURCE.format(rule=rule)
