"""The vocabulary all rooms share: what can be known of a cluster, and in what state that knowledge is."""
