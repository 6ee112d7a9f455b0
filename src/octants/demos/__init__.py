"""Complete programs that use Octants as anybody would: through ``import octants as qd``."""
