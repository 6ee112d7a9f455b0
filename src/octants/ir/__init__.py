"""The intermediate representation: structured SSA, its text form, and its meaning."""
