"""A live view of the sessions on a machine, from their transcripts alone.

The pure part is `state` (rows of one transcript in, what is known of it out) and `view` (rows to draw). Around it:
`tail` reads a transcript that grows, is rewritten, or is huge; `places` notices which transcripts exist and which
changed; `archived` knows the last archive of each session; `watcher` puts them together. Nothing here prints.

Changes are noticed by asking for each file's status, and no library for change notices is used: it would save about
half a percent of a core with 300 paths, and would miss files on network mounts and beyond the kernel's limit of
watches.
"""

from mala_context.analysis.watch.view import WatchRow
from mala_context.analysis.watch.watcher import Watcher

__all__ = ["WatchRow", "Watcher"]
