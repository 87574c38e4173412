"""vLLM's engines run in a known mode, within their memory, as their authors meant."""

from __future__ import annotations

from gpuctl.audit.check import Check
from gpuctl.checks.vllm_mode import codes
from gpuctl.checks.vllm_mode.answers import (
    agreeing_sources,
    answering_engines,
    closed_development,
    readable_command_lines,
)
from gpuctl.checks.vllm_mode.devices import (
    batches_on_slices,
    devices_by_number,
    gpus_asked_for,
    one_slice_per_engine,
)
from gpuctl.checks.vllm_mode.environment import harmless_service_links, variables_in_use
from gpuctl.checks.vllm_mode.learned import what_is_known_of_engines
from gpuctl.checks.vllm_mode.logs import readable_logs
from gpuctl.checks.vllm_mode.memory import (
    alone_at_start,
    enough_kv_cache,
    like_the_baseline,
    room_for_graphs,
    shared_gpus,
)
from gpuctl.checks.vllm_mode.modes import (
    eager_on_purpose,
    known_modes,
    required_modes,
    same_after_restart,
    strict_reading,
)
from gpuctl.checks.vllm_mode.needed import NEEDED_FOR
from gpuctl.checks.vllm_mode.releases import current_releases
from gpuctl.checks.vllm_mode.rollouts import possible_rollouts
from gpuctl.checks.vllm_mode.starts import running_engines

CHECK = Check(
    id="vllm-mode",
    title="vLLM engines, eager or with graphs, and their memory",
    package=__name__,
    codes=codes.ALL,
    assertions=(
        running_engines,
        known_modes,
        required_modes,
        eager_on_purpose,
        strict_reading,
        same_after_restart,
        agreeing_sources,
        room_for_graphs,
        shared_gpus,
        enough_kv_cache,
        alone_at_start,
        like_the_baseline,
        gpus_asked_for,
        one_slice_per_engine,
        batches_on_slices,
        devices_by_number,
        variables_in_use,
        harmless_service_links,
        closed_development,
        possible_rollouts,
        current_releases,
        readable_logs,
        answering_engines,
        readable_command_lines,
    ),
    learned=what_is_known_of_engines,
    needed_for=NEEDED_FOR,
)
