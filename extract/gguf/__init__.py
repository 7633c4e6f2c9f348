"""GGUF files: what their metadata and tensors mean, checked before a library reads them."""
