"""The doors: a live cluster, and records of one."""
