"""The baseline in this run: what has been learnt of it, its standing, and an operator's word about it.

    -> {"do": "baseline", "anew": false}                                   what would be accepted, and what stands against it
    <- {"ok": true, "text": "provisional", "offer": {...}}
    -> {"do": "accept-baseline", "anew": false, "digest": "5f0c...", "user": "alice"}
    <- {"ok": true, "text": "baseline accepted: 4 GPUs, 9 ports, 1 drive"}

What is accepted is what the operator has seen (the digest of the offer), or nothing. `anew`: what is here, whatever was known before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xidwatch.clock import Clock, iso
from xidwatch.core.messages import BaselineAccepted
from xidwatch.core.model import Readings
from xidwatch.core.rules import Rule
from xidwatch.core.state import State
from xidwatch.daemon.evidence import Evidence
from xidwatch.daemon.scribe import NOTICE, Scribe
from xidwatch.records import baseline, offer
from xidwatch.records.baseline import Baseline, Standing
from xidwatch.records.offer import Offered
from xidwatch.records.state import BaselineState

MOST_CHARACTERS = 64  # of a user's name

Known = tuple[tuple[Rule, ...], State, Readings]  # the rules, the state, and the inventory of everything


class Baselines:
    """`known()` gives what the daemon knows at this moment; `take` is its way to tell the watch."""

    def __init__(
        self, clock: Clock, evidence: Evidence, scribe: Scribe, known: Callable[[], Known], take: Callable[[BaselineAccepted], None]
    ) -> None:
        self._clock = clock
        self._evidence = evidence
        self._scribe = scribe
        self._known = known
        self._take = take
        self.knows_past = False
        self.standing = Standing(iso(clock.now().wall))

    def restore(self, found: Baseline | None) -> None:
        """The past is known; None: nothing was learnt before."""
        self.knows_past = True
        if found is not None:
            self.standing = found.standing

    def write(self) -> None:
        """As it is now: what to compare with, and who was there.

        Never by a run that does not know the past: it would leave three cards on record where there were four.
        """
        if self.knows_past:
            _, state, inventory = self._known()
            now, boot_id = self._clock.now(), self._clock.boot_id
            self._evidence.baseline(baseline.learnt(now, boot_id, state.expected, inventory, state.roster.members, self.standing))

    def shown(self) -> BaselineState | None:
        """For the state file."""
        if not self.knows_past:
            return None
        word = self.standing.accepted
        return BaselineState(provisional=word is None, since=word.at if word else self.standing.since, by=word.by if word else "")

    # ------------------------------------------------------------------------------------------------------- requests

    def answer(self, request: Mapping[str, Any], uid: int) -> Mapping[str, object]:
        """What a person asks through the control socket. Raises ValueError with why not."""
        if not self.knows_past:
            raise ValueError("the records have not been read yet, so nobody knows what was learnt before; try again in a moment")
        anew = request.get("anew") is True
        rules, state, inventory = self._known()
        offered = offer.offered(rules, state, inventory, anew=anew, at=self._clock.now(), boot_id=self._clock.boot_id)
        word = self.standing.accepted
        if request.get("do") == "baseline":
            text = f"accepted on {word.at} by {word.by}" if word else "provisional"
            return {"ok": True, "text": text, "accepted": word is not None, "offer": offer.to_plain(offered)}
        if word is not None and not anew:
            raise ValueError(f"a baseline was accepted on {word.at} by {word.by} already")
        if offered.obstacles:
            raise ValueError(f"not accepted: {'; '.join(offered.obstacles)}")
        if request.get("digest") != offered.digest:
            raise ValueError("what is here has changed since it was shown; look again")
        return self._accept(offered, uid, str(request.get("user", ""))[:MOST_CHARACTERS], anew=anew)

    def _accept(self, offered: Offered, uid: int, user: str, *, anew: bool) -> Mapping[str, object]:
        now = self._clock.now()
        self.standing = offer.accepted(offered, now, uid, user)
        text = f"baseline accepted: {offer.count(offered.baseline.members)}"
        self._scribe.record("note", {"text": text, "uid": uid, "user": user, "anew": anew, "digest": offered.digest})
        self._take(BaselineAccepted(now, anew))
        self._scribe.log(NOTICE, f"{text}, by {user or uid}", event="baseline")
        return {"ok": True, "text": text}
