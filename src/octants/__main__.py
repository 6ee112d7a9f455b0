"""``python -m octants``: see `octants.tools.command_line`."""

from __future__ import annotations

import sys

from octants.tools.command_line import main

if __name__ == "__main__":
    sys.exit(main())
