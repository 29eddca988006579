"""Which job keeps which room, and what earlier cycles left to be resumed."""
