"""Guarded change: a runbook is a target, guards and steps; one engine plans, applies, resumes and undoes."""
