"""Control flow: which is the same in all lanes (`uniformity`), and the shapes of loops."""
