"""Which assertions depend on which reads where nothing is wrong. By way of the engines all of them look at
all reads: to say who is concerned, how large a GPU is, or what a log told."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from gpuctl.audit.assertion import Assertion
from gpuctl.checks.vllm_mode.answers import answering_engines, readable_command_lines
from gpuctl.checks.vllm_mode.devices import batches_on_slices, one_slice_per_engine
from gpuctl.checks.vllm_mode.environment import harmless_service_links, variables_in_use
from gpuctl.checks.vllm_mode.logs import readable_logs
from gpuctl.checks.vllm_mode.memory import (
    alone_at_start,
    enough_kv_cache,
    like_the_baseline,
    room_for_graphs,
    shared_gpus,
)
from gpuctl.checks.vllm_mode.modes import same_after_restart
from gpuctl.checks.vllm_mode.rollouts import possible_rollouts
from gpuctl.facts.fact import Fact
from gpuctl.vllm import facts

NEEDED_FOR: Final[Mapping[Fact[Any], Collection[Assertion]]] = {
    facts.NODES: (batches_on_slices, one_slice_per_engine, possible_rollouts, shared_gpus),
    facts.DEPLOYMENTS: (possible_rollouts, same_after_restart),
    facts.SERVICES: (harmless_service_links,),
    facts.CONFIG_MAPS: (batches_on_slices, variables_in_use),
    facts.LOGS: (alone_at_start, enough_kv_cache, like_the_baseline, readable_logs, room_for_graphs),
    facts.PAGES: (answering_engines,),
    facts.COMMAND_LINES: (readable_command_lines,),
}
