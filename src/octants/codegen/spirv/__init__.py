"""SPIR-V from the structured intermediate representation, word by word."""
