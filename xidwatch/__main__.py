"""`python -m xidwatch`: the command line without an installed script."""

from __future__ import annotations

from xidwatch.cli import main

raise SystemExit(main())
