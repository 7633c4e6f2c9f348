"""The embedded study's inputs: a small trained model and a corpus, shipped inside the package."""
