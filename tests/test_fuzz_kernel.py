"""A short run of the fuzzer, the same every time; `make fuzz` runs a long one."""

from __future__ import annotations

import pytest

from tests.fuzz_kernel import Breach, Fuzz
from xidwatch.core.kernel import Parser


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_breaks_the_parser(seed: int) -> None:
    """A few thousand damaged records; every kind of event comes out of them."""
    fuzz = Fuzz(seed)
    fuzz.run(60.0, most_records=4000)
    assert {"xid", "aer", "ghes", "lockup"} <= fuzz.tally.keys()


def test_a_breach_is_told_with_what_brought_it_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error and the records."""

    def feed(_self: Parser, _message: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(Parser, "feed", feed)
    with pytest.raises(Breach, match=r"KeyError: 'oops'\nrecords: \[KernelMessage"):
        Fuzz(1).run(60.0)
