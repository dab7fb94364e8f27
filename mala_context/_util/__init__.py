"""Small helpers that every room may use: text, log, files, background work."""
