"""What is stale, incomplete, damaged or left over in a data root, and its removal."""
