"""Certificates shaped as Kueue's rotator makes them: every CA has the same subject and serial number 0."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.memory import A_MOMENT

DAY = timedelta(days=1)
MADE = A_MOMENT - 30 * DAY
_SERIAL_ONE = b"\xa0\x03\x02\x01\x02\x02\x01\x01"
_SERIAL_ZERO = b"\xa0\x03\x02\x01\x02\x02\x01\x00"
CA_NAME = x509.Name(
    [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "kueue"),
        x509.NameAttribute(NameOID.COMMON_NAME, "kueue-ca"),
    ]
)


@cache
def key(which: int = 1) -> rsa.RSAPrivateKey:
    """A key for each number."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def rotators_ca(
    which: int = 1, made: datetime = MADE, ends: datetime = MADE + 3650 * DAY, *, serial_zero: bool = True
) -> str:
    """A CA as PEM. `which` tells rotations apart."""
    builder = (
        x509.CertificateBuilder(CA_NAME, CA_NAME, key(which).public_key(), 1, made, ends)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("kueue-ca")]), critical=False)
    )
    certificate = builder.sign(key(which), hashes.SHA256())
    der = certificate.public_bytes(Encoding.DER)
    return pem(_with_serial_zero(der, certificate, which) if serial_zero else der)


def _with_serial_zero(der: bytes, certificate: x509.Certificate, which: int) -> bytes:
    """The builder refuses serial number 0, so it is put in afterwards and signed again."""
    body = certificate.tbs_certificate_bytes
    changed = body.replace(_SERIAL_ONE, _SERIAL_ZERO, 1)
    signature = key(which).sign(changed, padding.PKCS1v15(), hashes.SHA256())
    return der.replace(body, changed).replace(certificate.signature, signature)


@cache
def leaf(names: tuple[str, ...], which: int = 1, *, self_signed: bool = False) -> str:
    """A server certificate as PEM, signed by a rotator's CA or, as cert-manager's issuer does, by itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    issuer = subject if self_signed else CA_NAME
    own, signer = key(which + 100), key(which + 100 if self_signed else which)
    builder = (
        x509.CertificateBuilder(issuer, subject, own.public_key(), 1, MADE, MADE + 365 * DAY)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
    )
    return pem(builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.DER))


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=sign,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def pem(der: bytes, kind: str = "CERTIFICATE") -> str:
    """DER in PEM's clothes."""
    text = base64.encodebytes(der).decode()
    return f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n"


def bundle(*texts: str) -> str:
    """A caBundle as it stands in an object."""
    return base64.b64encode("".join(texts).encode()).decode()
