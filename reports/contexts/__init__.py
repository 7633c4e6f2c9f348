"""What changes with the size of the context, the query and its place."""
