"""From an incident's records to an archive that may leave the house, and is a fixture where it is unpacked.

    state directory ──► gather ──► scene, timeline: host.txt, timeline.txt, kmsg.txt, config.toml  ──┐
                          └──────► parts: rows, journal, dump, baseline as they were recorded      ──┴──► mask ──► archive

Law: reads records and nothing else; all that goes out has gone through `core.masking`; what is left out is named.
"""
