"""The findings of this check. An id is stable and never reused; README.md explains each."""

from __future__ import annotations

from gpuctl.audit.finding import Code, Severity

EAGER_FORBIDDEN = Code("VLM001", "an engine runs eager where graphs are required")
GRAPHS_FORBIDDEN = Code("VLM002", "an engine runs graphs where eager mode is required")
STRICT_WOULD_FAIL = Code("VLM003", "the strict reading would fail", Severity.INFO)
ACCIDENTAL_EAGER = Code("VLM004", "an engine runs eager and nobody asked for it", Severity.WARNING)
DELIBERATE_EAGER = Code("VLM005", "an engine runs eager as its pod asks", Severity.INFO)
CHANGES_NEXT_START = Code("VLM006", "the next start changes the mode", Severity.INFO)
UNKNOWN_ANNOTATION = Code("VLM007", "the annotation for the mode says nothing known", Severity.WARNING)
SOURCES_DIFFER = Code("VLM008", "what runs is not what the pod's spec tells", Severity.INFO)

GRAPHS_OUTSIDE = Code("VLM010", "graphs lie outside of the memory budget", Severity.WARNING)
TOO_HIGH = Code("VLM011", "the utilisation leaves graphs no room", Severity.WARNING)
SHARED_TOO_MUCH = Code("VLM012", "engines on one GPU ask for more than it has", Severity.WARNING)
LOW_CONCURRENCY = Code("VLM013", "the KV cache is too small for what the policy asks", Severity.WARNING)
SMALL_KV_SHARE = Code("VLM014", "the KV cache has too small a share of the budget", Severity.WARNING)
CO_TENANT = Code("VLM015", "something else used the GPU when the engine started", Severity.WARNING)
DRIFTED = Code("VLM016", "memory differs from the baseline", Severity.WARNING)

TAKEN_BY_OTHERS = Code("VLM020", "something else holds the GPU's memory")
KV_TOO_SMALL = Code("VLM021", "the KV cache does not hold one request of full length")
NO_KV_MEMORY = Code("VLM022", "nothing of the budget is left for the KV cache")
PROFILING_RACE = Code("VLM023", "a neighbour's memory changed while the engine measured its own")
CAPTURE_OUT_OF_MEMORY = Code("VLM024", "the memory ran out while graphs were captured")
OUT_OF_MEMORY = Code("VLM025", "the GPU's memory ran out")
DEVICE_BY_UUID = Code("VLM026", "CUDA_VISIBLE_DEVICES names a device by UUID")
SERVICE_LINK = Code("VLM027", "a Service named vllm breaks VLLM_PORT")
NO_GPU_SEEN = Code("VLM028", "the container sees no GPU")
FAILED = Code("VLM029", "the engine does not start")
KILLED_WHILE_STARTING = Code("VLM030", "the engine is killed before it has started")
SEVERAL_STARTS = Code("VLM031", "the engine needed several attempts to start", Severity.INFO)
WRONG_ARGUMENTS = Code("VLM032", "vLLM refuses its arguments")
PORT_TAKEN = Code("VLM033", "the engine's port is in use")

NO_GPU_ASKED = Code("VLM040", "an engine asks for no GPU", Severity.WARNING)
PARALLEL_OVER_SLICES = Code("VLM041", "an engine is to spread over MIG slices")
SLICES_UNUSED = Code("VLM042", "a container asks for several MIG slices", Severity.WARNING)
SLICE_DEFAULTS = Code("VLM043", "batch sizes on a MIG slice are left to chance", Severity.INFO)

VARIABLE_IGNORED = Code("VLM050", "a variable that vLLM ignores", Severity.WARNING)
SERVICE_NAMED_VLLM = Code("VLM051", "a Service named vllm", Severity.WARNING)
DEVELOPMENT_ENDPOINTS = Code("VLM052", "an engine's development endpoints are on", Severity.WARNING)

ROLLOUT_WOULD_DEADLOCK = Code("VLM060", "the next rollout would wait for a GPU for ever", Severity.WARNING)
ROLLOUT_DEADLOCKED = Code("VLM061", "a rollout waits for a GPU that the old pod holds")

OLD_ENGINE = Code("VLM070", "an old engine", Severity.INFO)

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Code))
