"""Memory of work items: `spill_vectors` moves vectors there, `localise_rows` rows of arrays."""
