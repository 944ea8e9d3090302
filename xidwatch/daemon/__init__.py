"""Everything that touches the world and decides nothing: the loop, and the expendable processes around it."""
