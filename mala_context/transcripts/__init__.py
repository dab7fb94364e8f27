"""Where transcripts lie, and how their bytes become rows. The standard library is enough for it."""
