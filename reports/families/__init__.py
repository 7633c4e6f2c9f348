"""Families of studies, with their page."""
