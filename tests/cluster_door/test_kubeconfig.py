"""What stands in a kubeconfig, and what a person is told when it cannot be used."""

from __future__ import annotations

import base64
import json
import os
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.cluster.connection import Access, CannotConnect, connect
from gpuctl.cluster.deadline import Deadline
from gpuctl.facts.state import NotKnown, Reason, Unknown
from tests.builders.certificates import rotators_ca
from tests.cluster_door.fake_api import FakeApi, body, status

Write = Callable[..., Access]
CHOSEN = "current-context: a\ncontexts: [{{name: a, context: {{cluster: {}}}}}]\nclusters: [{}]"
CLUSTER = "{name: c, cluster: {server: 'https://x', certificate-authority"
UNAUTHORIZED = status(401, "Unauthorized", "Unauthorized")


def headers(api: FakeApi) -> dict[str, str]:
    return {name.lower(): value for name, value in api.requests[-1][1].items()}


def plugin(tmp_path: Path, script: str) -> dict[str, Any]:
    path = tmp_path / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": str(path), "interactiveMode": "Never"}}


def credential(token: str) -> str:
    content = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    return json.dumps(content)


def get(access: Access, path: str = "/version") -> int:
    return connect(access).get(path, "the version", Deadline.after(5)).status


def test_it_asks_as_the_user_of_the_current_context(api: FakeApi, kubeconfig: Write) -> None:
    api.on("/version", body({}))
    access = kubeconfig(api.url, user={"token": "s3cret"})

    assert get(access) == 200
    assert headers(api)["authorization"] == "Bearer s3cret"
    assert headers(api)["user-agent"].startswith("gpuctl/")
    assert connect(access).name == f"lab ({api.url})"


def test_flags_take_precedence(api: FakeApi, kubeconfig: Write) -> None:
    api.on("/version", body({}))
    access = replace(kubeconfig(), server=api.url, as_user="ann", as_groups=("ops", "dev"))

    assert get(access) == 200
    assert headers(api)["impersonate-user"] == "ann"
    assert connect(access).server == api.url


def test_cluster_and_user_are_taken_by_name(api: FakeApi, tmp_path: Path) -> None:
    api.on("/version", body({}))
    path = tmp_path / "two.yaml"
    path.write_text(
        f"""
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
clusters: [{{name: a, cluster: {{}}}}, {{name: b, cluster: {{server: '{api.url}'}}}}]
users: [{{name: a, user: {{token: a}}}}, {{name: b, user: {{token: b}}}}]
"""
    )

    assert get(Access(kubeconfig=str(path), cluster="b", user="b")) == 200
    assert headers(api)["authorization"] == "Bearer b"


def test_of_several_files_the_first_current_context_counts(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, name in (("1", "one"), ("2", "two")):
        content = {
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name}}],
            "clusters": [{"name": name, "cluster": {"server": api.url}}],
        }
        (tmp_path / path).write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(str(tmp_path / name) for name in ("none", "1", "2")))

    assert connect(Access()).name == f"one ({api.url})"


def test_the_server_alone_is_enough(api: FakeApi) -> None:
    api.on("/version", body({}))

    assert get(Access(server=api.url)) == 200


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("{", "while parsing"),
        ("\x00", "special characters"),
        (b"\xff\xfe\xfa", "not a usable kubeconfig"),
        ("[]", "not a usable kubeconfig"),
        ("hello", "not a usable kubeconfig"),
        ("contexts: 3", "not a usable kubeconfig"),
        ("contexts: [{}]", "Expected key name"),
        ("{}", "no current context; it has no contexts"),
        ("current-context: x\ncontexts: [{name: a}, {name: b}]", "no context named 'x'; its contexts: a, b"),
        (CHOSEN.format("c", ""), "no cluster named 'c'"),
        (CHOSEN.format("c, user: u", "{name: c, cluster: {server: 'https://x'}}"), "no user named 'u'"),
        (CHOSEN.format("c", "{name: c, cluster: {}}"), "'' is not the address of an API server"),
        (CHOSEN.format("c", "{name: c, cluster: {server: 'ftp://x'}}"), "'ftp://x' is not the address"),
        (CHOSEN.format("c", f"{CLUSTER}: no.pem}}}}"), "File does not exist"),
        (CHOSEN.format("c", f"{CLUSTER}-data: aGVsbG8=}}}}"), "unusable certificates"),
        (CHOSEN.format("c", f"{CLUSTER}-data: x}}}}"), "not a usable kubeconfig"),
    ],
)
def test_a_bad_kubeconfig_is_named_with_what_is_wrong(
    tmp_path: Path, content: str | bytes, said: str
) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(CannotConnect) as caught:
        connect(Access(kubeconfig=str(path)))

    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kubeconfig_path", [None, "nowhere/config"])
def test_no_kubeconfig_at_all(kubeconfig_path: str | None, tmp_path: Path) -> None:
    with pytest.raises(CannotConnect, match="no such file, and this is not a pod"):
        connect(Access(kubeconfig=kubeconfig_path))


def test_an_unknown_context_is_named(kubeconfig: Write) -> None:
    with pytest.raises(CannotConnect, match="context prod: no context named 'prod'; its contexts: lab"):
        connect(replace(kubeconfig(), context="prod"))


def test_a_plugin_gives_a_token(api: FakeApi, kubeconfig: Write, tmp_path: Path) -> None:
    api.on("/version", body({}))

    assert get(kubeconfig(api.url, user=plugin(tmp_path, f"echo '{credential('fresh')}'"))) == 200
    assert headers(api)["authorization"] == "Bearer fresh"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"exec": {"apiVersion": "v1", "command": "no-such-plugin", "installHint": "brew it"}}, "brew it"),
        ({"exec": {"apiVersion": "v1", "command": "false"}}, "plugin false failed: exec: process returned 1"),
        ({"exec": {"apiVersion": "v1", "command": "true"}}, "failed to decode process output"),
    ],
)
def test_a_failing_plugin_is_no_anonymous_login(
    kubeconfig: Write, user: dict[str, Any], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CannotConnect, match="the credentials plugin") as caught:
        connect(kubeconfig(user=user))

    assert said in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_plugin_that_hangs_is_not_waited_for(kubeconfig: Write, tmp_path: Path) -> None:
    with pytest.raises(CannotConnect, match=r"no credentials within 0\.3 s"):
        connect(kubeconfig(user=plugin(tmp_path, "exec sleep 5")), seconds=0.3)


def test_a_login_that_comes_too_late_leaves_no_files_behind(
    kubeconfig: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates of the kubeconfig, and what an interrupted login was about to write."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    user = plugin(tmp_path, f"sleep 0.6; echo '{credential('t')}'")
    with pytest.raises(CannotConnect):
        connect(kubeconfig("https://127.0.0.1:1", user, **{"certificate-authority-data": "aGVsbG8="}), 0.2)

    assert list(scratch.iterdir()) == []
    time.sleep(0.8)
    assert list(scratch.iterdir()) == []


def test_a_refused_token_is_renewed_once(api: FakeApi, kubeconfig: Write, tmp_path: Path) -> None:
    api.on("/version", UNAUTHORIZED, body({}))
    script = f"echo x >>{tmp_path}/runs; echo '{credential('t')}'"

    assert get(kubeconfig(api.url, user=plugin(tmp_path, script))) == 200
    assert (tmp_path / "runs").read_text() == "x\nx\n"


def test_refused_credentials_stay_refused(api: FakeApi, kubeconfig: Write) -> None:
    api.on("/version", UNAUTHORIZED)
    connection = connect(kubeconfig(api.url, user={"token": "old"}))

    assert [connection.get("/version", "it", Deadline.after(5)).status for _ in range(2)] == [401, 401]
    assert api.asked("/version") == 3


def test_a_plugin_that_fails_at_renewal_is_unauthorized(
    api: FakeApi, kubeconfig: Write, tmp_path: Path
) -> None:
    api.on("/version", UNAUTHORIZED)
    script = f"test ! -e {tmp_path}/ran || exit 3; touch {tmp_path}/ran; echo '{credential('t')}'"
    connection = connect(kubeconfig(api.url, user=plugin(tmp_path, script)))

    with pytest.raises(NotKnown, match="process returned 3") as caught:
        connection.get("/version", "it", Deadline.after(5))
    assert isinstance(caught.value.state, Unknown)
    assert caught.value.state.reason is Reason.UNAUTHORIZED


def test_a_proxy_is_used_unless_the_address_is_excepted(
    api: FakeApi, kubeconfig: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("/version", body({}))
    with pytest.raises(NotKnown, match=r"the proxy on the way to .* fails"):
        get(kubeconfig(**{"proxy-url": "http://127.0.0.1:1"}))

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert get(kubeconfig(api.url)) == 200


def test_a_second_login_has_its_certificates_too(kubeconfig: Write) -> None:
    """As when a token is renewed: the client would hand out the file of the first login."""
    authority = base64.b64encode(rotators_ca(serial_zero=False).encode()).decode()
    access = kubeconfig("https://127.0.0.1:1", **{"certificate-authority-data": authority})
    connect(access)
    connect(access)


def test_certificates_leave_no_files_behind(
    kubeconfig: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    with pytest.raises(CannotConnect):
        connect(kubeconfig("https://127.0.0.1:1", **{"certificate-authority-data": "aGVsbG8="}))

    assert list(scratch.iterdir()) == []
