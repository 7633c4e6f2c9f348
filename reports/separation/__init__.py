"""How well heads separate what they select."""
