"""Starting an engine: systemd is told once, and the engine is asked until it serves or the time is over.

One start is one start: an engine that ends on the way is not started again here, and what systemd starts by itself is another
run. Nothing is started beside processes of an earlier run, which systemd would do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from xidwatch.supervise import remains
from xidwatch.supervise.readiness import Pages
from xidwatch.supervise.service import Service, Shown

LOOK_SECONDS = 0.5  # between two looks at the unit and its pages
STEADY_SECONDS = 5.0  # an engine that nobody can ask has to run for so long

READY, REFUSED, FAILED, NOT_READY = "ready", "refused", "failed", "not-ready"
NEVER_STARTED = ("masked", "masked-runtime")


@dataclass(frozen=True, slots=True)
class Started:
    """What became of it."""

    result: str
    detail: str = ""
    invocation_id: str = ""


@dataclass(slots=True)
class Start:
    """One start. `deadline`: monotonic; `pause` is called between looks, with seconds; `enabled_only`: nothing that is disabled."""

    service: Service
    pages: Pages
    deadline: float
    monotonic: Callable[[], float]
    pause: Callable[[float], None]
    enabled_only: bool = True

    def run(self) -> Started:
        """Returns at the deadline, or as soon as it serves or cannot come to that."""
        before = self.service.show()
        if objection := self._objection(before):
            return Started(FAILED, objection)
        assert before is not None
        adopted = before.active_state == "active"
        said = "" if adopted else self._order(before)
        first = self._until_its_job_is_done()
        if first is None or first.is_down:
            return self._ended(first, said)
        began = self.monotonic()
        return self._until_ready(first, began, "it was running already; " if adopted else "")

    def _objection(self, now: Shown | None) -> str:
        """Why nothing is started at all."""
        if now is None:
            return "systemd does not answer"
        if now.load_state != "loaded":
            return f"its unit is {now.load_state or 'unknown'}"
        if now.file_state in NEVER_STARTED or (self.enabled_only and now.file_state == "disabled"):
            return f"its unit is {now.file_state}"
        left = remains.living(self.service.processes(), self.service.proc_root) if now.is_down else []
        return "an earlier run is not gone: " + "; ".join(remains.describe(left, self.service.proc_root)) if left else ""

    def _order(self, before: Shown) -> str:
        """A unit that has failed too often is not started before that is forgotten."""
        if before.active_state == "failed":
            self.service.order("reset-failed")
        return self.service.order("start")

    def _until_its_job_is_done(self) -> Shown | None:
        """Then it is active, or down; still on its way when the time is over."""
        while True:
            now = self.service.show()
            if (now is not None and not now.has_job) or self.monotonic() >= self.deadline:
                return now
            self.pause(LOOK_SECONDS)

    def _ended(self, now: Shown | None, said: str = "") -> Started:
        """Why it does not run, by what systemd says."""
        if now is None:
            return Started(FAILED, said or "systemd does not answer")
        result = REFUSED if now.was_refused else FAILED
        words = f"its own condition said no: {now}" if now.was_refused else f"it is {now}"
        return Started(result, "; ".join(filter(None, [said, words])), now.invocation_id)

    def _until_ready(self, first: Shown, began: float, prefix: str) -> Started:
        words = f"it is {first}"
        while self.monotonic() < self.deadline:
            now = self.service.show()
            if now is not None and self._is_another(first, now):
                return replace(self._ended(now), result=FAILED)
            if now is not None and now.active_state == "active":
                ready, words = self._ask(began)
                if ready:
                    return Started(READY, prefix + words, now.invocation_id)
            self.pause(LOOK_SECONDS)
        return Started(NOT_READY, f"not within its time: {words}", first.invocation_id)

    @staticmethod
    def _is_another(first: Shown, now: Shown) -> bool:
        """The run that was started is over."""
        return now.is_down or now.restarts > first.restarts or now.invocation_id != first.invocation_id or now.sub_state == "auto-restart"

    def _ask(self, began: float) -> tuple[bool, str]:
        if self.pages.has_any:
            answer = self.pages.ask(self.deadline, self.monotonic)
            return answer.ready, answer.words
        ran = self.monotonic() - began
        return ran >= STEADY_SECONDS, f"it runs for {ran:.0f} s, and no health, metrics or probe says where to ask it"
