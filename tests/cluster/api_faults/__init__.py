"""`gpuctl check` against an API server that fails: every request it makes, with every fault.

The requests are those of a clean run, so those of a new check join by themselves. What must not pass follows
from what the checks declare to read.
"""
