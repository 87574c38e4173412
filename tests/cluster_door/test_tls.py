"""TLS as all connections of one login share it."""

from __future__ import annotations

import ssl
from contextlib import suppress

from gpuctl.cluster.connection import _tls


def hello(context: ssl.SSLContext) -> bytes:
    """The first that a server hears."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="api.example.com")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_no_connection_changes_what_another_one_is_just_offering() -> None:
    context = _tls(verify=True, ca_certs="", ca_cert_data="", cert_file="", key_file="")
    context.set_alpn_protocols(["changed"])  # as urllib3 does whenever a thread connects
    assert b"http/1.1" in hello(context)
    assert b"changed" not in hello(context)
