"""The steps of a drill: what is done to the canary objects, and what must come of it.

Each is done once: what it brought about is gone a few steps later, on purpose.
"""
