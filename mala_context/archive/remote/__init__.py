"""A second home for pieces: an object store, after the local files and never in a hook's way.

A piece is written to a local file first, as ever. `push` then sends it to the store in the background: `address` says
where to, `bucket` talks to the store, `uploaded` keeps in the session's manifest what arrived. What has no `uploaded`
row has not arrived, whatever happened in between, and is sent again under the same name.
"""
