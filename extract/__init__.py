"""From a model and a text to tensors on disk; knows nothing of metrics, SQL or reports."""
