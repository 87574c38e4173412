"""LocalQueues can be read in every version that is served: a read that takes the conversion webhook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from gpuctl.audit.assertion import Strength, holds
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import CustomResourceDefinition
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown
from gpuctl.kueue.answers import read_failure
from gpuctl.kueue.facts import CRDS, NEW_READS, OLD_READS
from gpuctl.kueue.objects import GROUP
from gpuctl.kueue.registrations import Converted

QUEUES: Final = Ref(CustomResourceDefinition.of, f"localqueues.{GROUP}")
_VERSION = re.compile(rf"conversion webhook for {re.escape(GROUP)}/(\w+)")

Reads = State[Each[Ref, Any]]


@holds(
    "LocalQueues can be read in every version that is served",
    given(CRDS, Maybe(OLD_READS), Maybe(NEW_READS)),
    Strength.PROOF,
)
def readable_versions(crds: Each[Ref, CustomResourceDefinition], old: Reads, new: Reads) -> Iterator[Finding]:
    crd = crds.get(QUEUES)
    converted = Converted(crd.spec.names.plural, crd.spec.versions) if crd else None
    if converted is None or not converted.others or crd is None or crd.spec.conversion.strategy != "Webhook":
        raise NotKnown(Inapplicable("no LocalQueue is read through a conversion"))
    reads = {"v1beta1": old, "v1beta2": new}
    failed = dict.fromkeys(gap.message for read in reads.values() for gap in _gaps(read) if _converts(gap))
    if failed:
        yield _finding(next(iter(failed)), converted)
        return
    _must_have_been_read([reads[version] for version in _served(crd) if version in reads])
    _must_have_converted([reads[version] for version in converted.others if version in reads])


def _gaps(read: Reads) -> Iterator[Unknown]:
    if isinstance(read, Unknown):
        yield read
    if isinstance(read, Known):
        yield from read.value.gaps()


def _converts(gap: Unknown) -> bool:
    return gap.reason is Reason.SERVER_ERROR and bool(_VERSION.search(gap.message))


def _served(crd: CustomResourceDefinition) -> Iterator[str]:
    return (version.name for version in crd.spec.versions if version.served)


def _must_have_been_read(reads: list[Reads]) -> None:
    for read in reads:
        if not isinstance(read, Known):
            raise NotKnown(read)
        for gap in read.value.gaps():
            raise NotKnown(gap)


def _must_have_converted(reads: list[Reads]) -> None:
    """Raises NotKnown unless a queue was read in each version that takes a conversion."""
    if not all(isinstance(read, Known) and read.value.entries for read in reads):
        why = "there is no LocalQueue, and reading none takes no conversion"
        raise NotKnown(Unknown(Reason.NOT_ASKED, why))


def _finding(message: str, converted: Converted) -> Finding:
    match = _VERSION.search(message)
    version = match.group(1) if match else converted.others[0]
    reading = read_failure(message)
    return Finding(
        code=codes.READS_BROKEN,
        object=QUEUES,
        message=(
            f"LocalQueues can't be read in {version} (they are stored in {converted.stored}), because the "
            f"conversion webhook fails: {reading.meaning}"
        ),
        evidence=(Evidence(QUEUES, "", reading.says),),
        look=f"kubectl get localqueues.{version}.{GROUP} --all-namespaces",
        remedy=(
            "heal what other findings say of the webhook's Service, manager and caBundle; if there is none, "
            "apply the CRDs of the installed release again; risk: caBundle is empty for a moment"
        ),
        cause="conversion fails",
    )
