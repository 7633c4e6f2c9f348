"""Measures of heads beside chance: random selections and shuffled value states."""
