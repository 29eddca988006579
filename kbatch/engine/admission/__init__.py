"""What a group needs before it is let in queue."""
