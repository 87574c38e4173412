"""The loss of a ResourceFlavor, tried on canary objects; and a queue that is held for a while."""
