"""From a model and a text to tensors on disk, independent of metrics, SQL and reports."""
