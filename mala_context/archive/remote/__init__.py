"""A second home for pieces: an object store, after the local files and never in a hook's way.

A piece is always written to a local file first. `push` then sends it to the store in the background: `address` says
where to, `bucket` talks to the store, `uploaded` records in the session's manifest which files arrived. A file without
an `uploaded` row counts as not arrived, and is sent again under the same name.
"""
