"""Find transcripts and turn their bytes into rows, with the standard library alone."""
