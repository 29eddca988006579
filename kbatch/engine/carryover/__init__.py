"""What goes from one cycle to the next."""
