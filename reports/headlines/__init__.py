"""The first screen: whether heads separate what they select, what cannot be told, and the facts."""
