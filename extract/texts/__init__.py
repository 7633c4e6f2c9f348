"""From documents to equal windows of tokens, and from tokens back to text."""
