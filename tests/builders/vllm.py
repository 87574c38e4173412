"""Logs and pods of vLLM engines, for tests. The lines are made of vLLM's format strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DEFAULT_COMPILATION = (
    "compilation_config={'level': None, 'mode': <CompilationMode.VLLM_COMPILE: 3>, 'debug_dump_path': None, "
    "'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, 'max_cudagraph_capture_size': 512}"
)
EAGER_COMPILATION = (
    "compilation_config={'mode': <CompilationMode.NONE: 0>, 'cudagraph_mode': <CUDAGraphMode.NONE: 0>}"
)


def record(
    message: str, module: str = "core.py", level: str = "INFO", at: str = "09-01 10:00:00", who: str = ""
) -> str:
    """One line of vLLM 0.8 and later."""
    return f"{who}{level} {at} [{module}:101] {message}"


def old_record(message: str, module: str, at: str = "04-01 10:00:00", level: str = "INFO") -> str:
    """One line of vLLM before 0.8."""
    return f"{level} {at} {module}:101] {message}"


def config_line(
    version: str,
    *,
    eager: bool = False,
    compilation: str = DEFAULT_COMPILATION,
    engine: str = "V1 ",
    **fields: object,
) -> str:
    told = {
        "model": "'acme/chat-7b'",
        "speculative_config": "None",
        "dtype": "torch.bfloat16",
        "max_seq_len": 8192,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "quantization": "None",
        "enforce_eager": eager,
        "kv_cache_dtype": "auto",
        "device_config": "cuda",
        "seed": 0,
        "served_model_name": "chat",
        **fields,
    }
    text = ", ".join(f"{name}={value}" for name, value in told.items())
    rest = f", {compilation}" if compilation else ""
    a = "a " if engine else "an "
    return f"Initializing {a}{engine}LLM engine (v{version}) with config: {text}{rest})"


def graphs_log(
    version: str = "0.22.1", *, took: float = 0.71, kv: float = 4.1, utilization: float = 0.9
) -> str:
    """A whole start with graphs, of a version that estimates their memory."""
    core, api = "(EngineCore pid=111) ", "(APIServer pid=1) "
    lines = (
        record(f" █▄█▀ █     █  version {version}", "utils.py", who=api),
        record(
            f"non-default args: {{'model_tag': 'acme/chat-7b', 'gpu_memory_utilization': {utilization}}}",
            "utils.py",
            who=api,
        ),
        record(config_line(version), who=core),
        record("Model loading took 15.18 GiB memory and 2.640207 seconds", "gpu_model_runner.py", who=core),
        record("torch.compile took 25.93 s in total", "monitor.py", who=core),
        record(
            "Profiling CUDA graph memory: PIECEWISE=51 (largest=512), FULL=35 (largest=256)",
            "gpu_model_runner.py",
            who=core,
        ),
        record("Estimated CUDA graph memory: 0.79 GiB total", "gpu_model_runner.py", who=core),
        record(f"Available KV cache memory: {kv} GiB", "gpu_worker.py", who=core),
        record("GPU KV cache size: 224,353 tokens", "kv_cache_utils.py", who=core),
        record("Maximum concurrency for 8,192 tokens per request: 27.39x", "kv_cache_utils.py", who=core),
        (
            "Capturing CUDA graphs (decode, FULL):   0%|          | 0/35 [00:00<?, ?it/s]\r"
            "Capturing CUDA graphs (decode, FULL): 100%|██████████| 35/35 [00:03<00:00,  9.34it/s]"
        ),
        record(f"Graph capturing finished in 7 secs, took {took} GiB", "gpu_model_runner.py", who=core),
        record(
            "CUDA graph pool memory: 0.71 GiB (actual), 0.79 GiB (estimated), difference: 0.07 GiB (10.1%).",
            "gpu_worker.py",
            who=core,
        ),
        record(
            "init engine (profile, create kv cache, warmup model) took 50.64 s (compilation: 25.93 s)",
            who=core,
        ),
        f"{api}INFO:     Application startup complete.",
    )
    return "\n".join(lines) + "\n"


def eager_log(version: str = "0.22.1") -> str:
    """A whole start with --enforce-eager."""
    core, api = "(EngineCore pid=111) ", "(APIServer pid=1) "
    lines = (
        record("non-default args: {'model': 'acme/chat-7b', 'enforce_eager': True}", "utils.py", who=api),
        record(
            "Enforce eager set, disabling torch.compile and CUDAGraphs. This is equivalent to setting "
            "-cc.mode=none",
            "vllm.py",
            "WARNING",
            who=api,
        ),
        record("Cudagraph is disabled under eager mode", "vllm.py", who=api),
        record(config_line(version, eager=True, compilation=EAGER_COMPILATION), who=core),
        record("Model loading took 15.18 GiB memory and 2.640207 seconds", "gpu_model_runner.py", who=core),
        record("Available KV cache memory: 5.0 GiB", "gpu_worker.py", who=core),
        record("GPU KV cache size: 270,000 tokens", "kv_cache_utils.py", who=core),
        record("Maximum concurrency for 8,192 tokens per request: 32.96x", "kv_cache_utils.py", who=core),
        record("init engine (profile, create kv cache, warmup model) took 20.64 s", who=core),
        f"{api}INFO:     Application startup complete.",
    )
    return "\n".join(lines) + "\n"


def v0_log(
    *,
    total: float = 23.65,
    utilization: float = 0.9,
    took: float = 0.6,
    non_torch: float = 0.1,
    eager: bool = False,
    **fields: object,
) -> str:
    """A whole start of the V0 engine (0.9.2). With graphs its log holds the words enforce_eager=True."""
    budget = round(total * utilization, 2)
    lines = [
        record(
            config_line(
                "0.9.2",
                eager=eager,
                compilation='compilation_config={"level":0,"use_cudagraph":true}',
                engine="V0 ",
                **fields,
            ),
            "llm_engine.py",
        ),
        record("Model loading took 7.5151 GiB and 3.479114 seconds", "model_runner.py"),
        record("Memory profiling takes 1.73 seconds", "worker.py"),
        record(
            f"the current vLLM instance can use total_gpu_memory ({total:.2f}GiB) x gpu_memory_utilization "
            f"({utilization:.2f}) = {budget:.2f}GiB",
            "worker.py",
        ),
        record(
            f"model weights take 7.52GiB; non_torch_memory takes {non_torch:.2f}GiB; PyTorch activation "
            "peak memory takes 1.40GiB; the rest of the memory reserved for KV Cache is "
            f"{budget - 8.92 - non_torch:.2f}GiB.",
            "worker.py",
        ),
        record("# cuda blocks: 19010, # CPU blocks: 2048", "executor_base.py"),
        record("Maximum concurrency for 8192 tokens per request: 37.13x", "executor_base.py"),
    ]
    if not eager:
        lines += [
            record(
                "Capturing cudagraphs for decoding. This may lead to unexpected consequences if the model "
                "is not static. To run the model in eager mode, set 'enforce_eager=True' or use "
                "'--enforce-eager' in the CLI.",
                "model_runner.py",
            ),
            record(f"Graph capturing finished in 8 secs, took {took:.2f} GiB", "model_runner.py"),
        ]
    lines.append(
        record("init engine (profile, create kv cache, warmup model) took 11.33 seconds", "llm_engine.py")
    )
    return "\n".join([*lines, "INFO:     Application startup complete."]) + "\n"


def stats_line(usage: float = 4.6, running: int = 1, waiting: int = 0) -> str:
    return record(
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 168.1 tokens/s, "
        f"Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {usage}%, Prefix cache hit "
        "rate: 0.0%",
        "loggers.py",
        who="(APIServer pid=1) ",
    )


_REQUEST = '(APIServer pid=1) INFO:     10.0.3.7:41822 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
ROTATED = f"{stats_line()}\n{_REQUEST}\n{stats_line(99.1, 3, 12)}\n"


def failed_log(error: str, *, version: str = "0.20.1", config: bool = True) -> str:
    core = "(EngineCore pid=214) "
    lines = [record(config_line(version), who=core)] if config else []
    lines += [
        record("EngineCore failed to start.", level="ERROR", who=core),
        record("Traceback (most recent call last):", level="ERROR", who=core),
        record(error, level="ERROR", who=core),
        (
            "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed "
            "core proc(s): {}"
        ),
    ]
    return "\n".join(lines) + "\n"


# Objects


def container(
    args: Sequence[str] = ("acme/chat-7b",),
    *,
    name: str = "vllm",
    image: str = "vllm/vllm-openai:v0.22.1",
    gpus: Mapping[str, int] | None = None,
    env: Mapping[str, str] = {},
    **more: Any,
) -> dict[str, Any]:
    resources = {"nvidia.com/gpu": 1} if gpus is None else gpus
    return {
        "name": name,
        "image": image,
        "args": list(args),
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"limits": {key: str(number) for key, number in resources.items()}},
        **more,
    }


def pod(
    name: str = "chat-7c9d5b8f4-x2x4z",
    *containers: dict[str, Any],
    namespace: str = "serving",
    ready: bool = True,
    restarts: int = 0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] = {},
    state: Mapping[str, Any] | None = None,
    phase: str = "Running",
    node: str = "gpu-1",
    **spec: Any,
) -> dict[str, Any]:
    """A pod of Deployment chat, running, unless told otherwise."""
    inside = list(containers) or [container()]
    now = {"running": {"startedAt": "2026-11-30T09:00:00Z"}} if state is None else state
    status = {"ready": ready, "restartCount": restarts, "state": now}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"pod-template-hash": "7c9d5b8f4", "app": "chat"} if labels is None else dict(labels),
            "annotations": dict(annotations),
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "chat-7c9d5b8f4",
                    "uid": "1",
                    "controller": True,
                }
            ],
        },
        "spec": {"nodeName": node, "containers": inside, **spec},
        "status": {
            "phase": phase,
            "startTime": "2026-11-30T08:59:00Z",
            "containerStatuses": [{"name": each["name"], **status} for each in inside]
            if phase == "Running"
            else [],
        },
    }


def node(name: str = "gpu-1", labels: Mapping[str, str] = {}, **allocatable: int) -> dict[str, Any]:
    """A node with two 24 GB GPUs, unless told otherwise."""
    offers = {key.replace("__", "/").replace("_", "."): number for key, number in allocatable.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "nvidia.com/gpu.product": "NVIDIA-L4",
                "nvidia.com/gpu.memory": "23034",
                "nvidia.com/gpu.count": "2",
                **labels,
            },
        },
        "spec": {},
        "status": {
            "allocatable": {key: str(number) for key, number in (offers or {"nvidia.com/gpu": 2}).items()}
        },
    }


def deployment(
    name: str = "chat", *containers: dict[str, Any], namespace: str = "serving", **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
            },
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": list(containers) or [container()]},
            },
            **spec,
        },
    }


def service(name: str = "vllm", namespace: str = "serving", address: str = "10.96.0.20") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {"clusterIP": address},
    }
