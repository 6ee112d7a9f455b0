"""The accesses of tasks and launches, and whether they alias or race.

* Within and between work items: `access_aliasing`, `repeated_reads`; races: `races`,
  `packed_word_races`.
* Of launches and tasks: `accessed_regions`, `concurrent_tasks`.
* Of local vectors: `vector_storage_reuse`.
"""
