"""The archive: what a compaction throws away is kept, byte for byte.

`store.TranscriptArchive` is the front; `docs/reference/archive-format.md` says what is on disk. Standard library
only, and nothing heavy at import: a command hook pays for every import.
"""
