"""How to read a head, on a small example (Figure 1)."""
