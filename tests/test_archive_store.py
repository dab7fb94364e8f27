"""`TranscriptArchive`: chains, modes, what is logged."""

import logging

from mala_context.archive.store import TranscriptArchive


def rows(first, last):
    return b"".join(b'{"n":%d,"text":"%s"}\n' % (n, b"x" * 40) for n in range(first, last))


def cat(archive, session="s1", chain=1):
    directory = archive.location
    names = [p.name for p in archive.pieces(session) if p.chain == chain and p.subagent is None]
    out = b""
    for name in names:
        with open(f"{directory}/{name}", "rb") as file:
            out += file.read()
    return out


def test_pieces_of_a_growing_transcript_are_the_transcript(tmp_path):
    transcript = tmp_path / "s1.jsonl"
    archive = TranscriptArchive(tmp_path / "archives")
    for step in range(1, 6):
        transcript.write_bytes(rows(0, step * 10))
        result = archive.archive(transcript, "s1", trigger="auto")
        assert result.archived
    assert len(archive.pieces("s1")) == 5
    assert cat(archive) == transcript.read_bytes()
