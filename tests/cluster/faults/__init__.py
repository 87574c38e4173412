"""gpuctl killed, stopped, refused and disturbed on a real control plane: what is left each time.

strike.py runs the program as it is, in a process of its own, and lets something happen at one of its write
calls; writes.py names these calls. stage.py has the nodes, the pods and what must be true of them in the end,
cases.py and disturbances.py what happens, matrix.py runs it all, and table.py writes docs/faults.md.
"""
