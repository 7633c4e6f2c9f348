"""What heads and keys do to the loss: forward passes in which they are replaced or left out."""
