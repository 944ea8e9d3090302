"""A real inference server stopped and started by the installed service; skipped where there is no wheel of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes import llama as server
from tests.rig.container import llama
from tests.rig.container.engine import UNIT
from tests.rig.container.host import SWITCH, Host
from tests.rig.container.test_supervise import outcomes

SECONDS = 90.0  # for what a busy machine takes a while to do

pytestmark = [
    pytest.mark.rig,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(bool(server.why_not()), reason=server.why_not()),
]


def test_it_goes_in_the_middle_of_a_prompt_and_comes_back_with_a_token(new_host: Callable[..., Host]) -> None:
    """Whoever it runs as. What it says of its work is on record while it does any; the way back is by every proof."""
    host = new_host(views=llama.views())
    engine = llama.Llama(host, more="User=nobody")
    host.until("its token is counted", lambda: engine.seen().get("generated_tokens") == "1", SECONDS)
    with engine.works():
        host.until("it works", lambda: engine.seen().get("requests_running") == "1" and engine.seen()["requests_waiting"] == "2", SECONDS)
        host.tree.die(SWITCH)
        engine.until("HELD")
    assert not engine.runs()
    assert not engine.pids()
    ((result, _),) = outcomes(host, "STOP_ENGINE")
    assert result == "ok"

    host.tree.recover(SWITCH)
    engine.until("RUNNING")
    moves = engine.moves()
    assert moves[moves.index("STOPPING") :][:2] == ["STOPPING", "HELD"]
    assert moves[-3:] == ["PROVING", "STARTING", "RUNNING"]  # perhaps after a second look at what came back bit by bit
    for result, detail in outcomes(host, "START_ENGINE"):
        assert result == "ok"
        assert detail.startswith(f"health page: 200; one token of {server.NAME} in ")
    host.until("the new one's token is counted", lambda: engine.seen().get("generated_tokens") == "1", SECONDS)
    assert host.metrics()[f'xidwatch_engine_requests_running{{unit="{UNIT}"}}'] == 0
