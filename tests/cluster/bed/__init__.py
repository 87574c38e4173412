"""The test bed: a real control plane, a real node and a real Kueue, in namespaces of this machine."""

from .bed import Bed

__all__ = ["Bed"]
