"""Secrets are taken out wherever they hide; what a check needs stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.audit.mask import MASKED, key_like, masked, masked_shell, masked_text

SECRET = "hunter2-Zq9"


def a_container(**more: Any) -> dict[str, Any]:
    return {"name": "vllm", "image": "vllm/vllm-openai:v0.11.0", **more}


def a_pod(**more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "llm-0"},
        "spec": {"containers": [a_container(**more)]},
    }


def environment(*variables: tuple[str, str], args: tuple[str, ...] = ()) -> dict[str, Any]:
    clean = masked(a_pod(args=list(args), env=[{"name": name, "value": value} for name, value in variables]))
    assert clean is not None
    return {each["name"]: each["value"] for each in clean["spec"]["containers"][0]["env"]}


def arguments(*args: str) -> list[str]:
    clean = masked(a_pod(args=list(args)))
    assert clean is not None
    return list(clean["spec"]["containers"][0]["args"])


def test_secrets_are_never_kept() -> None:
    assert masked({"apiVersion": "v1", "kind": "Secret", "data": {"a": SECRET}}) is None


@pytest.mark.parametrize(
    "name",
    [
        "MIG_STRATEGY",
        "CONFIG_FILE",
        "NVIDIA_VISIBLE_DEVICES",
        "TORCH_COMPILE_DISABLE",
        "VLLM_USE_V1",
        "SM_VLLM_MODEL",
    ],
)
def test_values_of_allowed_names_stay(name: str) -> None:
    assert environment((name, "mixed")) == {name: "mixed"}


@pytest.mark.parametrize(
    "name",
    [
        "DB_URL",
        "HF_TOKEN",
        "VLLM_API_KEY",
        "VLLM_S3_SECRET",
        "SM_VLLM_API_KEY",
        "VLLM_DB_PASSWORD",
        "vllm_token",
        "PGPASSWD",
    ],
)
def test_values_of_other_and_of_key_like_names_do_not(name: str) -> None:
    assert environment((name, SECRET)) == {name: MASKED}


def test_a_name_that_the_arguments_reference_is_allowed_unless_it_is_key_like() -> None:
    found = environment(
        ("LEN", "4096"), ("MY_KEY", SECRET), args=("--max-model-len=$(LEN)", "--x", "$(MY_KEY)")
    )
    assert found == {"LEN": "4096", "MY_KEY": MASKED}


def test_the_flags_in_an_allowed_value_are_masked() -> None:
    found = environment(("VLLM_ADDITIONAL_ARGS", f"--enforce-eager --api-key {SECRET}"))
    assert found == {"VLLM_ADDITIONAL_ARGS": f"--enforce-eager --api-key {MASKED}"}


def test_where_a_value_comes_from_stays() -> None:
    source = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}
    clean = masked(a_pod(env=[source], envFrom=[{"secretRef": {"name": "more"}}]))
    assert clean is not None
    assert clean["spec"]["containers"][0]["env"] == [source]
    assert clean["spec"]["containers"][0]["envFrom"] == [{"secretRef": {"name": "more"}}]


@pytest.mark.parametrize(
    ("args", "clean"),
    [
        (("--api-key", SECRET), ("--api-key", MASKED)),
        (("--api-key", SECRET, SECRET, "--port", "1"), ("--api-key", MASKED, MASKED, "--port", "1")),
        ((f"--api-key={SECRET}",), (f"--api-key={MASKED}",)),
        ((f"--hf_token={SECRET}",), (f"--hf_token={MASKED}",)),
        (("--hf-token", SECRET, "meta/llama"), ("--hf-token", MASKED, "meta/llama")),
        (("--hf-token", "$(HF_TOKEN)"), ("--hf-token", "$(HF_TOKEN)")),
        (("--hf-token", "--port", "1"), ("--hf-token", "--port", "1")),
        (("-u", f"me:{SECRET}"), ("-u", MASKED)),
        (("--header", f"Authorization: Bearer {SECRET}"), ("--header", f"Authorization: {MASKED}")),
        ((f"--s3=https://me:{SECRET}@host/x",), (f"--s3=https://{MASKED}@host/x",)),
        (("--cfg", json.dumps({"s3_secret": SECRET})), ("--cfg", json.dumps({"s3_secret": MASKED}))),
        (("--password", f"'{SECRET}'"), ("--password", MASKED)),
    ],
)
def test_key_like_arguments_are_masked(args: tuple[str, ...], clean: tuple[str, ...]) -> None:
    assert arguments(*args) == list(clean)


@pytest.mark.parametrize(
    "args",
    [
        ("--max-num-batched-tokens", "8192", "--max-model-len", "4096"),
        ("--max-num-batched-tokens=8k", "--tokenizer", "x", "--stop-token-ids", "1"),
        ("vllm serve m --max-num-batched-tokens 8192 --enforce-eager --ssl-keyfile /a",),
        ("--compilation-config", '{"cudagraph_mode": "NONE"}'),
        ("--webhook-secret-name=webhook-server-cert",),
    ],
)
def test_other_arguments_stay(args: tuple[str, ...]) -> None:
    assert arguments(*args) == list(args)


@pytest.mark.parametrize(
    "script",
    [
        f"export HF_TOKEN={SECRET} && vllm serve m",
        f"HF_TOKEN='{SECRET} x' vllm serve m",
        f'vllm serve m --api-key "{SECRET}" --port 1',
        f"vllm serve m --api-key a {SECRET} --port 1",
        f"vllm serve m --api-key \\\n  {SECRET} \\\n --port 1",
        f"curl -u me:{SECRET} http://x; vllm serve m",
        f"curl -H 'Authorization: Bearer {SECRET}' http://x",
        f"curl -H 'X-Api-Key: {SECRET}' http://x",
        f"git clone https://{SECRET}@github.com/x",
        f'--kv \'{{"password": "{SECRET}"}}\'',
    ],
)
def test_scripts_are_masked(script: str) -> None:
    clean = masked(a_pod(command=["sh", "-c", script]))
    assert SECRET not in json.dumps(clean)
    assert masked_shell(masked_shell(script)) == masked_shell(script)


def test_scripts_keep_references_and_other_flags() -> None:
    script = 'exec vllm serve /m --hf-token "$HF_TOKEN" --api-key ${KEY} --enforce-eager ${VLLM_ARGS} $@'
    assert masked_shell(script) == script


WRAPPED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "Deployment": lambda pod: {"spec": {"template": {"spec": pod["spec"]}}},
    "Job": lambda pod: {"spec": {"template": {"spec": pod["spec"]}}},
    "Workload": lambda pod: {"spec": {"podSets": [{"name": "main", "template": {"spec": pod["spec"]}}]}},
    "initContainers": lambda pod: {"spec": {"initContainers": pod["spec"]["containers"]}},
    "RayCluster": lambda pod: {"spec": {"workerGroupSpecs": [{"template": {"spec": pod["spec"]}}]}},
    "ClusterPolicy": lambda pod: {"spec": {"driver": {"env": pod["spec"]["containers"][0]["env"]}}},
    "extraEnv": lambda pod: {"spec": {"extraEnv": pod["spec"]["containers"][0]["env"]}},
    "map": lambda _pod: {"spec": {"env": {"DB": SECRET}}},
    "annotation": lambda pod: {"metadata": {"annotations": {"x/pod": json.dumps(pod)}}},
    "probe": lambda _pod: {
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
        "lifecycle": {"exec": {"command": ["sh", "-c", f"TOKEN={SECRET} x"]}},
    },
    "field": lambda _pod: {"spec": {"storage": {"secretAccessKey": SECRET, "stringPassword": SECRET}}},
    "inner Secret": lambda _pod: {"objects": [{"kind": "Secret", "data": {"a": SECRET}}]},
    "last applied": lambda _pod: {
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET}}
    },
    "annotation name": lambda _pod: {"metadata": {"annotations": {"example.com/token": SECRET}}},
    "message": lambda _pod: {"status": {"conditions": [{"message": f"GET https://me:{SECRET}@x/: 401"}]}},
}


@pytest.mark.parametrize("place", WRAPPED)
def test_secrets_are_found_by_structure(place: str) -> None:
    pod = a_pod(env=[{"name": "DB", "value": SECRET}], args=["--api-key", SECRET])
    clean = masked({"apiVersion": "example.com/v1", "kind": "Any", **WRAPPED[place](pod)})
    assert SECRET not in json.dumps(clean)


def test_a_config_map_keeps_the_keys_a_view_declares() -> None:
    block = f"block:\n  apiKey: |\n    {SECRET}\n  next: 1\n"
    text = f"leaderElection: {{}}\nwebhookSecretName: w\npassword: {SECRET}\n{block}"
    data = {"config.yaml": text, "other": SECRET}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "data": data, "binaryData": {"x": SECRET}}
    clean = masked(item, ("config.yaml",))
    assert clean is not None
    assert list(clean["data"]) == ["config.yaml"]
    assert "binaryData" not in clean
    assert SECRET not in json.dumps(clean)
    assert "webhookSecretName: w\n" in clean["data"]["config.yaml"]
    assert "  next: 1\n" in clean["data"]["config.yaml"]


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + "a1B2" * 8,
        "sk-" + "a1B2" * 8,
        "ghp_" + "a1B2" * 9,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0aa.c2lnbmF0dXJl",
        "AKIA" + "ABCD" * 4,
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t",
    ],
)
def test_secrets_are_told_by_their_shape(secret: str) -> None:
    assert masked_text(f"before {secret} after") == f"before {MASKED} after"


@pytest.mark.parametrize("field", ["caBundle", "image", "resourceVersion", "secretName"])
def test_what_a_check_needs_stays(field: str) -> None:
    item = {
        "kind": "X",
        field: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",
        "topologyKey": "a/b",
        "key": "nvidia.com/gpu",
    }
    assert masked(item) == item


def test_managed_fields_stay() -> None:
    fields = [
        {"manager": "kueue", "time": "2026-11-30T10:00:00Z", "fieldsV1": {"f:data": {"f:password": {}}}}
    ]
    item = {"kind": "X", "metadata": {"managedFields": fields}}
    assert masked(item) == item


@pytest.mark.parametrize(
    ("name", "is_key_like"),
    [
        ("HF_TOKEN", True),
        ("S3_ACCESS_KEY_ID", True),
        ("apiKey", True),
        ("DB_PASSWORD", True),
        ("AWS_CREDENTIALS", True),
        ("VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD", False),
        ("VLLM_MAX_BAD_WORDS_TOTAL_TOKENS", False),
        ("TOKENIZER", False),
        ("MIG_STRATEGY", False),
    ],
)
def test_key_like_names(name: str, is_key_like: bool) -> None:
    assert key_like(name) is is_key_like


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["env", "args", "command", "annotations", "name", "value", "data", "kind"]), inner
        )
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["spec", "metadata", "data", "kind", "env", "args"]), trees))
def test_masking_takes_any_tree_and_masking_again_changes_nothing(tree: Any) -> None:
    clean = masked(tree, ("x",))
    assert clean is None or masked(clean, ("x",)) == clean
