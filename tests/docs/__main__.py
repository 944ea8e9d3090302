"""`python -m tests.docs`: writes what is generated in the documentation and in the alerts."""

from __future__ import annotations

import sys

from tests.docs.pages import ROOT, pages, written


def main() -> int:
    """Every page that has changed is named."""
    for path in pages():
        before = path.read_text()
        after = written(before)
        if after != before:
            path.write_text(after)
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
