"""What heads do: the loss without each head, and with fewer keys."""
