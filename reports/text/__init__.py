"""Texts with what heads select in them: the reader of a page."""
