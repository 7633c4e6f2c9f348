"""The sink's similarity to other value states, and Recall."""
