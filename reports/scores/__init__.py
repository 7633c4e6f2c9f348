"""Scores of heads as files for other tools."""
