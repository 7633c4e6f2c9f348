"""How well selections separate: AUC, curves over all radii, and the null models that they are compared with."""
