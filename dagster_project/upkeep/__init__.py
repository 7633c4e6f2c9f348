"""Maintenance of a data root: what is stale, incomplete, damaged or left over, and its removal."""
