"""Runbooks about the MIG geometry of nodes, and about the programs that make it."""
