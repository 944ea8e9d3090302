"""A real inference server stopped and started by the installed service; skipped where there is no wheel of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes import llama as server
from tests.rig.container import llama
from tests.rig.container.engine import UNIT
from tests.rig.container.host import RUN_DIR, SWITCH, Host
from tests.rig.container.test_supervise import outcomes

KEY = "sk-5c1d0f2b7e"
KEY_FILE = "/etc/xidwatch/engine.key"
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
    host.until("that is on record", lambda: engine.moves()[-1] == "RUNNING", SECONDS)
    moves = engine.moves()
    assert moves[moves.index("STOPPING") :][:3] == ["STOPPING", "HELD", "PROVING"]
    assert moves[-3:] == ["PROVING", "STARTING", "RUNNING"]  # the proof may have begun anew meanwhile
    for result, detail in outcomes(host, "START_ENGINE"):
        assert result == "ok"
        assert detail.startswith(f"health page: 200; one token of {server.NAME} in ")
    host.until("the new one's token is counted", lambda: engine.seen().get("generated_tokens") == "1", SECONDS)
    assert host.metrics()[f'xidwatch_engine_requests_running{{unit="{UNIT}"}}'] == 0


def test_a_key_gets_it_its_token_and_stands_in_no_record(new_host: Callable[..., Host]) -> None:
    """Read by the service, in its limits, from a file that is root's alone; not in what it says, writes or dumps, though argv has it."""
    host = new_host(views=llama.views())
    path = host.disk.root / KEY_FILE.lstrip("/")
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    engine = llama.Llama(host, key=KEY, more_config=f'api_key_file = "{KEY_FILE}"\n')
    host.tree.die(SWITCH)
    engine.until("HELD")
    host.until_line("TAKE_DUMP .* (ok|partial)")
    ((result, detail),) = outcomes(host, "START_ENGINE")
    assert (result, "one token of" in detail) == ("ok", True)
    written = [each for folder in (host.state_dir, host.container.path(RUN_DIR)) for each in folder.rglob("*") if each.is_file()]
    assert len(written) > 10
    assert not [each for each in written if KEY.encode() in each.read_bytes()]
    assert not [line for line in host.lines() if KEY in line]
