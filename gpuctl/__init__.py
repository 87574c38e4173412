"""gpuctl: checks and guarded runbooks for GPU Kubernetes clusters."""

__version__ = "0.1.0"
