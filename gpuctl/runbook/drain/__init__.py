"""Draining a node: which pods go, whose they are, and how they are asked to."""
