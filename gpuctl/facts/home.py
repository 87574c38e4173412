"""Where gpuctl is at home in a cluster. It stands alone, for what loads it must start fast."""

from __future__ import annotations

from typing import Final

HOME: Final = "gpuctl-system"
"""The namespace of its own objects, unless a person names another."""
