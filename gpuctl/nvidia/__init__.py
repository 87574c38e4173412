"""Knowledge of NVIDIA GPUs: nvidia-smi's texts, MIG profiles, labels, what a node should offer. No I/O."""
