"""The Metal shading language from the structured intermediate representation."""
