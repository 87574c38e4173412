"""Outputs: one file per format. Values in, text out."""
