"""docs/gallery.md: what was found in the shipped studies, with every number taken from stored tables."""
