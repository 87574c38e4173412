"""What a served certificate is worth to the API server: signed by a caBundle, valid, of the right name.

The order of the questions and the answers are those of Go, which the API server is written in. The verifier
of the cryptography library is of no use here: Kueue's CAs have the serial number 0, which it refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.kueue import certificates
from gpuctl.kueue.answers import Meaning

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

LONGEST_PATH = 8


def worth(chain: Sequence[str], roots: bytes, name: str, at: datetime) -> Meaning:
    """What the API server would say of a chain in PEM, trusting these roots (PEM too).

    Raises NotKnown for a certificate that can't be read.
    """
    shown = [each for text in chain for each in certificates.loaded(text.encode())]
    if not shown:
        raise NotKnown(Unknown(Reason.MALFORMED, "no certificate was shown"))
    leaf, trusted = shown[0], certificates.loaded(roots)
    if not _valid(leaf, at):
        return Meaning.EXPIRED
    if not _bears(leaf, name):
        return Meaning.OTHER_NAME
    path = _path(leaf, shown[1:], trusted)
    if not path:
        related = any(each.subject == leaf.issuer for each in trusted)
        return Meaning.STALE_CA if related else Meaning.UNKNOWN_CA
    return Meaning.HEALTHY if all(_valid(each, at) for each in path) else Meaning.EXPIRED


def described(chain: Sequence[str]) -> str:
    """The server's own certificate in a few words."""
    shown = certificates.parse_pem("".join(chain).encode()).certificates
    if not shown:
        return "no certificate"
    leaf = shown[0]
    names = ", ".join(leaf.names) or "no name"
    return (
        f"certificate {leaf.short} for {names}, valid {leaf.not_before:%Y-%m-%d} to {leaf.not_after:%Y-%m-%d}"
    )


def _valid(certificate: Certificate, at: datetime) -> bool:
    return certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc


def _bears(certificate: Certificate, name: str) -> bool:
    return any(_matches(each.lower(), name.lower()) for each in certificates.names(certificate))


def _matches(pattern: str, name: str) -> bool:
    """A wildcard stands for the whole first label."""
    if not pattern.startswith("*."):
        return pattern == name
    first, _, rest = name.partition(".")
    return bool(first) and pattern == f"*.{rest}"


def _path(
    leaf: Certificate, between: Sequence[Certificate], trusted: Sequence[Certificate]
) -> tuple[Certificate, ...]:
    """From the server's certificate to one that is trusted; empty if there is no such way."""
    path: tuple[Certificate, ...] = (leaf,)
    for _ in range(LONGEST_PATH):
        last = path[-1]
        if last in trusted:  # with cert-manager's self-signed issuer the leaf is its own CA
            return path
        root = next((each for each in trusted if _signed(last, each)), None)
        if root is not None:
            return (*path, root)
        step = next((each for each in between if each not in path and _signed(last, each)), None)
        if step is None:
            return ()
        path = (*path, step)
    return ()


def _signed(certificate: Certificate, by: Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(by)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return certificates.signs(by)
