"""Names and places."""

import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive import layout
from mala_context.archive.atomic_write import ARCHIVE_TEMPORARY, temporary_prefix
from mala_context.errors import ArchiveUnavailableError

PLAIN = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}", fullmatch=True)
EXT = st.from_regex(r"\.[A-Za-z0-9]{1,15}", fullmatch=True)
MOMENT = st.integers(0, 4 * 10**15)


@given(PLAIN, st.none() | PLAIN, st.integers(1, 99_999), MOMENT, EXT, st.booleans())
def test_a_name_says_what_it_was_made_of(session_id, subagent, chain, moment, ext, packed):
    name = layout.piece_name(session_id, subagent, chain, layout.stamp(moment), ext)
    parsed = layout.parse_piece_name(name + layout.PACKED if packed else name)
    assert parsed is not None
    assert (parsed.session_id, parsed.subagent, parsed.chain) == (session_id, subagent, chain)
    assert (parsed.stamp, parsed.ext, parsed.packed, parsed.plain) == (layout.stamp(moment), ext, packed, name)
    assert layout.session_of(name) == session_id
    assert len(name) < 250


@given(st.text(max_size=60))
def test_any_text_is_a_name_of_ours_or_none(text):
    parsed = layout.parse_piece_name(text)
    assert parsed is None or parsed.plain == text.removesuffix(".zst" if parsed.packed else "")
    layout.session_of(text)


@given(PLAIN, PLAIN)
def test_sessions_never_share_a_name(one, other):
    when = layout.stamp(0)
    names = {layout.piece_name(one, None, 2, when, ".jsonl"), layout.manifest_name(one)}
    assert {layout.session_of(name) for name in names} == {one}
    assert (one == other) == (layout.manifest_name(other) in names)


@given(MOMENT, MOMENT)
def test_stamps_order_as_time_does(one, other):
    assert (layout.stamp(one) < layout.stamp(other)) == (one < other)
    assert layout.stamp_microseconds(layout.stamp(one)) == one
    following = layout.next_stamp(one, layout.stamp(other))
    assert following > layout.stamp(other)


@pytest.mark.parametrize(
    "name",
    [
        "s_20260101T000000.000000Z_transcript",
        "s_20260101T000000.000000Z_transcript.",
        "s_20260101T000000.00000Z_transcript.jsonl",
        "s.1_20260101T000000.000000Z_transcript.jsonl",
        "s.02_20260101T000000.000000Z_transcript.jsonl",
        "s.x_20260101T000000.000000Z_transcript.jsonl",
        "s.2.3_20260101T000000.000000Z_transcript.jsonl",
        "s.agent-_20260101T000000.000000Z_transcript.jsonl",
        ".tmp-s.0123456789abcdef",
        "_20260101T000000.000000Z_transcript.jsonl",
        "s_20260101T000000.000000Z_transcript.jsonl.zst.zst",
        "s_\u0662\u0660260101T000000.000000Z_transcript.jsonl",
    ],
)
def test_other_names_are_no_pieces(name):
    assert layout.parse_piece_name(name) is None
    assert layout.session_of(name) is None


@pytest.mark.parametrize(
    ("transcript", "ext"),
    [("/t/a.jsonl", ".jsonl"), ("/t/a", ".txt"), ("/t/a.", ".txt"), ("/t/.jsonl", ".txt"), ("/t/a.b/c", ".txt"),
     ("/t/a.é", ".txt"), ("/t/a." + "x" * 16, ".txt"), ("/t/a.x y", ".txt"), ("/t/a.ZST", ".ZST")],
)  # fmt: skip
def test_the_extension_is_the_transcripts_own_where_it_can_be(transcript, ext):
    assert layout.extension(transcript) == ext


@pytest.mark.parametrize(
    ("env", "runs"),
    [
        ({"MALA_RUNS_DIR": "/runs", "XDG_CONFIG_HOME": "/xdg", "HOME": "{home}"}, "/runs"),
        ({"MALA_RUNS_DIR": "", "XDG_CONFIG_HOME": "/xdg", "HOME": "{home}"}, "/xdg/mala/runs"),
        (
            {"MALA_RUNS_DIR": "relative", "XDG_CONFIG_HOME": "relative/dir", "HOME": "{home}"},
            "{home}/.config/mala/runs",
        ),
        ({"MALA_RUNS_DIR": "~/runs", "HOME": "{home}"}, "{home}/.config/mala/runs"),
        ({"HOME": "/"}, None),
        ({"HOME": "//"}, None),
        ({"HOME": ""}, None),
        ({"HOME": "here"}, None),
        ({"HOME": "/nonexistent"}, None),
    ],
)
def test_the_runs_directory_is_the_first_usable_place(env, runs, tmp_path):
    env = {key: value.replace("{home}", str(tmp_path)) for key, value in env.items()}
    if runs is None:
        with pytest.raises(ArchiveUnavailableError, match="MALA_RUNS_DIR"):
            layout.runs_dir(env)
    else:
        assert layout.runs_dir(env) == runs.replace("{home}", str(tmp_path))


def test_without_home_the_users_entry_counts_and_without_that_there_is_no_place(tmp_path, monkeypatch):
    import pwd

    entry = pwd.struct_passwd(("u", "x", 1, 1, "", str(tmp_path), ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: entry)
    assert layout.runs_dir({}) == f"{tmp_path}/.config/mala/runs"

    def nobody(_uid):
        raise KeyError("no such user")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(ArchiveUnavailableError):
        layout.runs_dir({})


def test_a_repositorys_key_is_its_path():
    runs = layout.get_repo_runs_dir("/home/cyou/mala", {"MALA_RUNS_DIR": "/runs"})
    assert str(runs) == "/runs/-home-cyou-mala"


def test_a_key_that_another_repository_claimed_gets_a_hash(tmp_path):
    env = {"MALA_RUNS_DIR": str(tmp_path)}
    held = tmp_path / "-a-b-c"
    held.mkdir()
    (held / layout.REPO_MARKER).write_text("/a/b-c")
    assert layout.get_repo_runs_dir("/a/b-c", env) == held
    other = layout.get_repo_runs_dir("/a-b/c", env).name
    assert other.startswith("-a-b-c-")
    assert len(other) == len("-a-b-c-") + 12


@given(st.lists(st.text("abcé-", min_size=1, max_size=80), min_size=1, max_size=40))
def test_a_key_fits_a_file_system(parts):
    key = layout.repo_key("/" + "/".join(parts))
    assert len(os.fsencode(key)) <= layout.REPO_KEY_MAX
    assert "/" not in key


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/etc/hostname", path)])
def test_a_marker_that_is_no_file_claims_nothing(tmp_path, make):
    make(tmp_path / layout.REPO_MARKER)
    assert layout.read_marker(str(tmp_path)) is None


@given(PLAIN, st.binary(max_size=9))
def test_a_side_files_name_and_a_temporary_one_say_whose_they_are(session_id, data):
    name = layout.side_file_name(session_id, hashlib.sha256(data).hexdigest())
    assert layout.session_of(name) == session_id
    assert layout.session_of(name[:-1]) is None
    temporary = f"{temporary_prefix(session_id)}0123456789abcdef"
    assert layout.session_of(temporary) is None
    assert temporary.removeprefix(ARCHIVE_TEMPORARY).partition(".")[0] == session_id


NO_TIMES = (
    "20260230T000000.000000Z",
    "20261301T000000.000000Z",
    "20260100T000000.000000Z",
    "20260101T240000.000000Z",
    "20260101T006000.000000Z",
    "20260101T000060.000000Z",
    "99999999T999999.999999Z",
    "19691231T235959.000000Z",
)


@pytest.mark.parametrize("stamp", NO_TIMES)
def test_a_stamp_that_is_no_time_is_the_name_of_no_piece(stamp):
    assert layout.parse_piece_name(f"s1_{stamp}_transcript.jsonl") is None


def test_a_leap_day_is_a_time():
    assert layout.parse_piece_name("s1_20240229T235959.999999Z_transcript.jsonl") is not None
