"""A recorded or told incident, run again: the same daemon, the same probes and records, on a clock that nobody waits for.

    fixture (a folder of text)                                     records, as on the night itself
      host.txt      ──► bus, sensors, nvml: a host in a folder ──► the real probes ──┐
      timeline.txt  ──► what changes when; units: a systemctl without a process      ├─► the real daemon, watch, recorder, dumps
      kmsg.txt      ──► a pipe ──► the real reader and parser ───────────────────────┘

Real: the loop, the watch, workers' protocol and deadlines, every probe, the worker that stops and starts engines, the kernel log's
reader and parser, the journal, rows, baseline, dumps, state file and metrics. An hour takes seconds, and the bytes are the same every time:
boot ids, process numbers and both clocks belong to the fixture.

What cannot be real, and so is never shown by a replay:

- Nothing is a process (`children`). Each answer comes at once, unless the fixture says `late` or `hang`; what hangs is never found
  again among the processes, so of a probe that holds no driver the next tick has a fresh one.
- Nothing is synced: a replay proves what is recorded, not that it is on the disk. A machine that dies loses nothing it was told.
- Units, their processes and their pages are the fixture's (`units`): an engine takes as long as it says. Nobody listens on the metrics
  port or the control socket; what is asked there is an event of the timeline. This host's systemd is asked and told nothing.
- Time passes only between events and where a probe waits: no call takes long, and no deadline passes by itself.
"""
