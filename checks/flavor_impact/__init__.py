"""What rests on each ResourceFlavor, what its loss would do, and whether that was ever drilled."""

from __future__ import annotations

from gpuctl.audit.check import Check
from gpuctl.checks.flavor_impact import codes
from gpuctl.checks.flavor_impact.deleted import lasting_flavors
from gpuctl.checks.flavor_impact.drill import drilled_loss, removed_canaries
from gpuctl.checks.flavor_impact.existing import existing_flavors, protected_flavors
from gpuctl.checks.flavor_impact.learned import learned_of_flavors
from gpuctl.checks.flavor_impact.needed import NEEDED_FOR
from gpuctl.checks.flavor_impact.nodes import flavors_with_nodes, separate_nodes
from gpuctl.checks.flavor_impact.written import accepted_queues, read_flavors

CHECK = Check(
    id="flavor-impact",
    title="ResourceFlavors: what rests on them, and what their loss would do",
    package=__name__,
    codes=codes.ALL,
    assertions=(
        lasting_flavors,
        existing_flavors,
        protected_flavors,
        flavors_with_nodes,
        separate_nodes,
        read_flavors,
        accepted_queues,
        removed_canaries,
        drilled_loss,
    ),
    learned=learned_of_flavors,
    needed_for=NEEDED_FOR,
)
