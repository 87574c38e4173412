"""Runbooks about engines of vLLM."""
