"""MIG: what the scheduler believes a node offers, against what its silicon has."""

from __future__ import annotations

from gpuctl.audit.check import Check
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.answers import answering_nvidia_smi, visible_gpus
from gpuctl.checks.mig_consistency.capacity import healthy_devices, kept_promises, true_capacity
from gpuctl.checks.mig_consistency.configs import existing_configuration, sliced_as_configured
from gpuctl.checks.mig_consistency.holders import existing_devices, published_devices, still_offered
from gpuctl.checks.mig_consistency.instances import modes_in_effect, whole_devices
from gpuctl.checks.mig_consistency.isolation import kept_memory
from gpuctl.checks.mig_consistency.labels import discovered_labels, true_labels
from gpuctl.checks.mig_consistency.learned import learned_of_nodes
from gpuctl.checks.mig_consistency.managers import present_manager, rediscovered, running_operands
from gpuctl.checks.mig_consistency.owners import known_owner, nothing_left_behind
from gpuctl.checks.mig_consistency.paused import nothing_left_paused
from gpuctl.checks.mig_consistency.requests import asked_for, legal_sharing, offered
from gpuctl.checks.mig_consistency.state import carried_out
from gpuctl.checks.mig_consistency.strategy import alike_gpus, fitting_strategy

CHECK = Check(
    id="mig-consistency",
    title="what nodes are said to offer, and what their GPUs have",
    package=__name__,
    codes=codes.ALL,
    assertions=(
        carried_out,
        nothing_left_paused,
        existing_configuration,
        present_manager,
        running_operands,
        fitting_strategy,
        discovered_labels,
        rediscovered,
        legal_sharing,
        kept_promises,
        healthy_devices,
        still_offered,
        offered,
        asked_for,
        known_owner,
        nothing_left_behind,
        answering_nvidia_smi,
        visible_gpus,
        modes_in_effect,
        whole_devices,
        sliced_as_configured,
        alike_gpus,
        true_labels,
        true_capacity,
        existing_devices,
        published_devices,
        kept_memory,
    ),
    learned=learned_of_nodes,
)
