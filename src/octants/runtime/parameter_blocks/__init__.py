"""The parameter blocks of launches: their memory, slots and segments."""
