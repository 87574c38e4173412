"""Knowledge of vLLM: its command line, its logs, its memory, version by version. No I/O."""
