"""The bounds: coverage and width, what moves them, and how they hold in expectation."""
