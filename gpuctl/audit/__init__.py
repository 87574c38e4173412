"""Judging facts: checks, assertions, findings, and the verdict of a run."""
