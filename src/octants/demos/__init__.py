"""Complete programs that use Octants as users do: through ``import octants as qd``."""
