"""What a caBundle holds. Every rotation's CA has the same subject and serial number 0, so only keys tell
two of them apart."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from gpuctl.facts.state import NotKnown, Reason, Unknown

if TYPE_CHECKING:
    from cryptography import x509

_BLOCK = re.compile(rb"-----BEGIN ([^\r\n]{1,64}?)-----(.*?)-----END \1-----", re.DOTALL)
_BEGIN = b"-----BEGIN CERTIFICATE-----"
_SEQUENCE = 0x30
_LONG_FORM = 0x80


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate as far as trust depends on it. `key` is the SHA-256 of its public key."""

    subject: str
    key: str
    fingerprint: str
    not_before: datetime
    not_after: datetime
    signs: bool
    names: tuple[str, ...]

    @property
    def short(self) -> str:
        """Enough of the fingerprint to tell certificates apart by eye."""
        return self.fingerprint[:16]


@dataclass(frozen=True, slots=True)
class Bundle:
    """The certificates of a caBundle. `damage` says what in it is no certificate; empty if nothing."""

    certificates: tuple[Certificate, ...] = ()
    damage: str = ""

    @property
    def keys(self) -> frozenset[str]:
        """What two bundles are compared by."""
        return frozenset(certificate.key for certificate in self.certificates)

    @property
    def newest(self) -> Certificate:
        """The certificate that was made last."""
        return max(self.certificates, key=lambda each: (each.not_before, each.key))


def is_empty(ca_bundle: str) -> bool:
    """Whether nothing is in it. Manifests ship a lone newline (`Cg==`) as a placeholder."""
    return not ca_bundle.strip() or ca_bundle.strip() == "Cg=="


def decoded(encoded: str) -> bytes:
    """PEM text as it stands in an object: base64. What is none is no text."""
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""


@lru_cache(maxsize=64)
def parse(ca_bundle: str) -> Bundle:
    """Reads a caBundle as it stands in an object: base64 of PEM.

    Raises NotKnown for a certificate that is whole and that the library can't read.
    """
    try:
        pem = base64.b64decode("".join(ca_bundle.split()), validate=True)
    except (binascii.Error, ValueError):
        return Bundle(damage="it is not base64")
    return parse_pem(pem)


def parse_pem(pem: bytes) -> Bundle:
    """Reads PEM text. As the API server does, it looks at blocks of type CERTIFICATE alone."""
    blocks = [match.group(2) for match in _BLOCK.finditer(pem) if match.group(1) == b"CERTIFICATE"]
    whole = [der for der in map(_der, blocks) if der]
    cut = pem.count(_BEGIN) - len(whole)
    return Bundle(tuple(_certificate(der) for der in whole), _damage(pem, len(whole), cut))


def _damage(pem: bytes, whole: int, cut: int) -> str:
    if cut:
        return f"{cut} of its {cut + whole} certificates are cut or garbled"
    if whole:
        return ""
    kinds = sorted({_printable(match.group(1)) for match in _BLOCK.finditer(pem)})
    return f"it holds {', '.join(kinds)} and no certificate" if kinds else "it is not PEM"


def _printable(text: bytes) -> str:
    return text.decode("ascii", "backslashreplace")


def _der(block: bytes) -> bytes | None:
    """The DER of a block, if it is one whole ASN.1 sequence."""
    try:
        der = base64.b64decode(b"".join(block.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    return der if _is_one_sequence(der) else None


def _is_one_sequence(der: bytes) -> bool:
    if len(der) < 2 or der[0] != _SEQUENCE:  # noqa: PLR2004 - a tag and a length
        return False
    if der[1] < _LONG_FORM:
        return len(der) == 2 + der[1]
    size = der[1] - _LONG_FORM
    return len(der) == 2 + size + int.from_bytes(der[2 : 2 + size], "big")


def loaded(pem: bytes) -> list[x509.Certificate]:
    """The certificates of PEM text for those who verify one by another. Raises NotKnown."""
    from cryptography import x509

    blocks = (match.group(2) for match in _BLOCK.finditer(pem) if match.group(1) == b"CERTIFICATE")
    try:
        with _serial_zero_is_fine():
            return [x509.load_der_x509_certificate(der) for der in map(_der, blocks) if der]
    except Exception as error:  # a whole certificate that this library refuses is not the cluster's fault
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> NotKnown:
    message = f"a certificate cannot be read by this version of the library: {error}"
    return NotKnown(Unknown(Reason.MALFORMED, message))


def _certificate(der: bytes) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        with _serial_zero_is_fine():
            certificate = x509.load_der_x509_certificate(der)
            key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            return Certificate(
                subject=certificate.subject.rfc4514_string(),
                key=hashlib.sha256(key).hexdigest(),
                fingerprint=hashlib.sha256(der).hexdigest(),
                not_before=certificate.not_valid_before_utc,
                not_after=certificate.not_valid_after_utc,
                signs=signs(certificate),
                names=names(certificate),
            )
    except Exception as error:  # a whole certificate that this library refuses is not the cluster's fault
        raise _unreadable(error) from error


def signs(certificate: x509.Certificate) -> bool:
    """Whether certificates signed by this one are accepted."""
    from cryptography import x509

    try:
        if not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as absent:
        return absent.oid == x509.KeyUsage.oid


def names(certificate: x509.Certificate) -> tuple[str, ...]:
    """The DNS names that a certificate is good for."""
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(found.get_values_for_type(x509.DNSName))


@contextmanager
def _serial_zero_is_fine() -> Iterator[None]:
    from cryptography.utils import CryptographyDeprecationWarning

    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Parsed a serial number which wasn't positive", CryptographyDeprecationWarning
        )
        yield
