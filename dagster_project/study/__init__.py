"""The definition of a study and where its files are stored; imports no other part of this package."""
