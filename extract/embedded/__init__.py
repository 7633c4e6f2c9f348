"""The embedded default: a small trained model and the corpus it is read with, shipped inside the package."""
