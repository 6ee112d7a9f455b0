"""Arrays that Octants shares with other libraries."""
