"""MIG instances keep to their memory: evidence of isolation that an auditor can file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Finding
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import reads, run, smi, standing
from gpuctl.facts.fact import given
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.nvidia.facts import Looked, nodes_whose_hardware_is_known
from gpuctl.nvidia.model import Gpu

TOLERANCE = 64  # MiB by which sizes may differ: nvidia-smi rounds, and the driver keeps something back


@every(
    nodes_whose_hardware_is_known, "MIG instances use no more memory than they have", given(), Strength.PROOF
)
@standing
def kept_memory(looked: Looked) -> Iterator[Finding]:
    sliced = [gpu for gpu in looked.hardware.gpus if gpu.devices]
    for gpu in sliced:
        if gpu.memory is None and gpu.processes is None:
            continue
        yield from _exceeded(looked, gpu)
        odd = [*_sums(gpu), *_sizes(looked, gpu), *_processes(gpu)]
        if odd:
            yield _odd(looked, gpu, odd)
    silent = [gpu for gpu in sliced if _is_untold(gpu)]
    if silent:
        raise NotKnown(
            Unknown(Reason.NOT_ASKED, "nvidia-smi did not tell the memory of its devices", str(silent[0]))
        )


def _is_untold(gpu: Gpu) -> bool:
    """Whether the memory of one of its devices is not known."""
    if gpu.memory is None:
        return True
    told = [gpu.memory_of(device) for device in gpu.devices]
    return any(each is None or each.used is None or each.total is None for each in told)


def _exceeded(looked: Looked, gpu: Gpu) -> Iterator[Finding]:
    for device in gpu.devices:
        memory = gpu.memory_of(device)
        if memory is None or memory.used is None or memory.total is None or memory.used <= memory.total:
            continue
        yield Finding(
            code=codes.MEMORY_EXCEEDED,
            object=looked.node.ref,
            message=(
                f"MIG device {device.index} ({device.profile}) of GPU {gpu.index} on {looked.node.ref} uses "
                f"{memory.used} MiB of {memory.total} MiB: memory is not isolated as it should be"
            ),
            evidence=(smi(looked, "-q -x", f"{gpu}, {device.uuid}: {memory.used} of {memory.total} MiB"),
                      reads(looked)),
            look=run(looked.node, "-q -x"),
            remedy=(
                "take the node out of use for several tenants, and report this to NVIDIA with "
                "nvidia-bug-report.sh"
            ),
            mark=device.uuid,
        )  # fmt: skip


def _sums(gpu: Gpu) -> Iterator[str]:
    """Devices of one GPU instance share its memory, which then counts once."""
    used: dict[int, int] = {}
    for each in gpu.memory or ():
        if each.used is not None:
            used[each.instance] = max(used.get(each.instance, 0), each.used)
    total = sum(used.values())
    if gpu.memory_total is not None and total > gpu.memory_total:
        yield f"the instances use {total} MiB together, the GPU has {gpu.memory_total} MiB"


def _sizes(looked: Looked, gpu: Gpu) -> Iterator[str]:
    offers = looked.offers.found if looked.offers and not looked.offers.said else ()
    sizes = {each.profile: each.memory for each in offers if each.gpu == gpu.index}
    for device in gpu.devices:
        memory, size = gpu.memory_of(device), sizes.get(device.profile.instance)
        if device.exact and memory and memory.total and size and abs(memory.total - size) > TOLERANCE:
            yield (
                f"device {device.index} ({device.profile}) has {memory.total} MiB, its profile {size:.0f} MiB"
            )


def _processes(gpu: Gpu) -> Iterator[str]:
    instances = {each.id for each in gpu.instances or ()}
    homes: dict[int, set[int]] = defaultdict(set)
    for process in gpu.processes or ():
        if process.instance is None:
            continue
        homes[process.pid].add(process.instance)
        if gpu.instances is not None and process.instance not in instances:
            yield f"process {process.pid} is on GPU instance {process.instance}, which does not exist"
    for pid, where in homes.items():
        if len(where) > 1 and pid > 1:
            yield f"process {pid} is on GPU instances {', '.join(map(str, sorted(where)))} at once"


def _odd(looked: Looked, gpu: Gpu, odd: list[str]) -> Finding:
    return Finding(
        code=codes.MEMORY_ODD,
        object=looked.node.ref,
        message=f"The memory of GPU {gpu.index} on {looked.node.ref} does not add up: {'; '.join(odd[:4])}",
        evidence=(*(smi(looked, "-q -x", f"{gpu}: {each}") for each in odd[:4]), reads(looked)),
        look=run(looked.node, "-q -x"),
        remedy="read again when nothing changes; if it stays, take the GPU out of use for several tenants",
        mark=gpu.uuid,
        cause=f"{gpu.name}|{len(odd)}",
    )
