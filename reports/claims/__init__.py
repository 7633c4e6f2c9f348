"""The claims of the paper with their verdicts."""
