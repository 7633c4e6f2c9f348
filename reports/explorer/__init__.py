"""The explorer: a map of all heads, and the curves of the one that a reader chooses."""
