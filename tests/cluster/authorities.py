"""Certificates for tests on the bed: authorities named as anybody's, and what they sign."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A CA. `pem` is what a caBundle holds of it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def leaf(self, name: str, ends: timedelta = 30 * DAY) -> bytes:
        """A server's certificate for this name, valid until so long from now, and its key, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        builder = x509.CertificateBuilder(
            self.certificate.subject, subject, key.public_key(), 7, now - 300 * DAY, now + ends
        )
        signed = (
            builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return signed.public_bytes(Encoding.PEM) + plain


def authority(organization: str = "kueue", name: str = "kueue-ca") -> Authority:
    """A CA of this name, by default the one that every CA of Kueue's rotator bears."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            # As Go writes them: its verifier compares names byte by byte.
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization, _ASN1Type.PrintableString),
            x509.NameAttribute(NameOID.COMMON_NAME, name, _ASN1Type.PrintableString),
        ]
    )
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 1, now - 400 * DAY, now + 3000 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)
