"""From a checkpoint to a model that is loaded safely, and is the one in its files."""
