"""What the fits recover of planted parameters."""
