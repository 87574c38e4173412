"""Runbooks about Kueue's manager and its queues."""
