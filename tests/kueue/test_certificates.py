"""Bundles: what is read of them, and that Kueue's serial number 0 is no trouble."""

from __future__ import annotations

import base64
import warnings
from datetime import timedelta

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.facts.state import NotKnown, Reason
from gpuctl.kueue.certificates import is_empty, parse, parse_pem
from tests.builders.certificates import MADE, bundle, leaf, pem, rotators_ca


def test_a_ca_with_serial_number_zero_is_read_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    text = rotators_ca(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert x509.load_pem_x509_certificate(text.encode()).serial_number == 0
    recwarn.clear()
    (certificate,) = parse_pem(text.encode()).certificates
    assert not recwarn.list
    assert certificate.signs
    assert certificate.not_before == MADE
    assert certificate.subject == "CN=kueue-ca,O=kueue"


def test_two_cas_of_the_same_name_differ_by_key() -> None:
    one, two = (parse_pem(rotators_ca(which).encode()) for which in (1, 2))
    assert one.newest.subject == two.newest.subject
    assert one.keys != two.keys


def test_the_same_key_made_anew_is_the_same_ca() -> None:
    again = parse_pem(rotators_ca(1, MADE - timedelta(days=1)).encode())
    first = parse_pem(rotators_ca(1).encode())
    assert again.keys == first.keys
    assert again.newest.fingerprint != first.newest.fingerprint


def test_a_leaf_does_not_sign() -> None:
    (certificate,) = parse(bundle(leaf(("a.b.svc",)))).certificates
    assert not certificate.signs
    assert certificate.names == ("a.b.svc",)


def test_text_around_the_blocks_and_windows_line_ends_are_passed_over() -> None:
    text = "# Kueue's CA\n" + rotators_ca(1).replace("\n", "\r\n") + "\nend"
    assert len(parse_pem(text.encode()).certificates) == 1


@pytest.mark.parametrize("text", ["", " ", "Cg==", "\n"])
def test_nothing_is_empty(text: str) -> None:
    assert is_empty(text)


@pytest.mark.parametrize(
    ("data", "damage"),
    [
        (b"hello", "it is not PEM"),
        (b"\xff\xfe\x00", "it is not PEM"),
        (pem(b"x", "EC PRIVATE KEY").encode(), "it holds EC PRIVATE KEY and no certificate"),
        (b"-----BEGIN CERTIFICATE-----\nMII", "1 of its 1 certificates are cut or garbled"),
        (
            rotators_ca(1).encode() + b"-----BEGIN CERTIFICATE-----\nMII",
            "1 of its 2 certificates are cut or garbled",
        ),
        (pem(b"").encode(), "1 of its 1 certificates are cut or garbled"),
    ],
)
def test_damage_is_named(data: bytes, damage: str) -> None:
    assert parse_pem(data).damage == damage


def test_a_whole_certificate_that_cannot_be_read_is_unknown() -> None:
    with pytest.raises(NotKnown) as gap:
        parse(bundle(pem(b"\x30\x03\x02\x01\x05")))
    assert gap.value.state.reason is Reason.MALFORMED  # type: ignore[union-attr]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_bundle_damage_or_unknown(data: bytes) -> None:
    for text in (data, pem(data).encode()):
        try:
            found = parse(base64.b64encode(text).decode())
        except NotKnown:
            continue
        assert found.certificates or found.damage


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    assert parse(text).damage
