"""The bed's own certificate authorities, and the identities they vouch for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=30)
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path

    @classmethod
    def at(cls, folder: Path, name: str) -> "Pair":
        return cls(folder / f"{name}.crt", folder / f"{name}.key")


@dataclass(frozen=True)
class Authority:
    """A certificate authority. It lives in its two files, so any process that reads them can sign."""

    files: Pair

    @classmethod
    def make(cls, folder: Path, name: str) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        certificate = _unsigned(subject, subject, key.public_key(), is_authority=True).sign(
            key, hashes.SHA256()
        )
        return cls(_write(Pair.at(folder, name), certificate, key))

    def client(self, folder: Path, user: str, groups: Sequence[str] = (), file: str = "") -> Pair:
        """What a client proves with that it is this user, in these groups."""
        key = ec.generate_private_key(ec.SECP256R1())
        unsigned = _unsigned(_name(user, groups), self._certificate().subject, key.public_key())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        signed = unsigned.add_extension(usage, critical=False).sign(self._key(), hashes.SHA256())
        return _write(Pair.at(folder, file or user), signed, key)

    def server(self, folder: Path, name: str, hosts: Sequence[str]) -> Pair:
        """What a server proves with that it is any of these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        unsigned = _unsigned(_name(name), self._certificate().subject, key.public_key())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        signed = unsigned.add_extension(usage, critical=False).add_extension(names, critical=False)
        return _write(Pair.at(folder, name), signed.sign(self._key(), hashes.SHA256()), key)

    def _certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.files.certificate.read_bytes())

    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.files.key.read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """A public and a private key without a certificate: what service account tokens are signed with."""
    key = ec.generate_private_key(ec.SECP256R1())
    public, private = folder / f"{name}.pub", folder / f"{name}.key"
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    _write_key(private, key)
    return public, private


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, is_authority: bool = False
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )


def _name(user: str, groups: Sequence[str] = ()) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key)
    return pair


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
