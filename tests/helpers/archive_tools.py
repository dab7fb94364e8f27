"""What the archive's tests share."""

import os

from mala_context.archive.increment import open_plain


def rows(first, last, width=40):
    """Rows `first` to `last` (not included) of a transcript, as JSON lines."""
    return b"".join(b'{"n":%d,"text":"%s"}\n' % (n, b"x" * width) for n in range(first, last))


def grow(transcript, first, last):
    """Write rows `first` to `last` (not included) behind what a transcript holds."""
    with open(transcript, "ab") as file:
        file.write(rows(first, last))


def cat(archive, session="s1", chain=None, subagent=None):
    """The bytes of a chain, by default the newest one."""
    pieces = [each for each in archive.pieces(session) if each.subagent == subagent]
    chain = chain or max(each.chain for each in pieces)
    out = b""
    with archive.view(session) as files:
        for piece in pieces:
            if piece.chain == chain:
                reader = open_plain(files, piece)
                buffer = bytearray(1 << 16)
                while count := reader.readinto(buffer):
                    out += buffer[:count]
                reader.close()
    return out


def names(archive, suffix="_transcript.jsonl"):
    """Names of the files in an archive's directory."""
    return sorted(name for name in os.listdir(archive.location) if name.endswith(suffix))


def set_age(archive, days, now_ns, session=None):
    """Set the modification time of a session's files."""
    when = now_ns - int(days * 86_400 * 10**9)
    for name in os.listdir(archive.location):
        if session is None or name.startswith((f"{session}_", f"{session}.")):
            os.utime(os.path.join(archive.location, name), ns=(when, when))
