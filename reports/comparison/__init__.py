"""Several studies side by side."""
