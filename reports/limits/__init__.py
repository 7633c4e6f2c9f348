"""How well a softmax can select at all."""
