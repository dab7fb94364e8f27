"""The configuration file: every key, every way to get it wrong, and nothing but `ConfigError`."""

import dataclasses
import errno
import math
import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive.remote.address import is_address
from mala_context.config import (
    SCHEMA,
    ArchiveConfig,
    ContextConfig,
    GuardConfig,
    Retention,
    checked,
    load_config,
    parse,
    target_of,
)
from mala_context.config.document import MAX_CHARACTERS, MAX_COPIES, MAX_DEPTH
from mala_context.config.schema import ACCEPTED, SECTIONS, setting
from mala_context.errors import ConfigError

ROOT = pathlib.Path(__file__).parents[3]

EXAMPLE = """\
context:
  enabled: true
  estimator: occupancy
  window: auto
  warn_at: 0.70
  tell_agent: true
  compact_at: null
  compact_focus: null
  compact_idle: false
  restart_at: null
  max_restarts: 3
  continuation_template: null
  final_at: null
  finishing_tools: [Write, Edit, TodoWrite, "Bash(git *)"]
  subagents:
    warn_at: null
    final_at: null
  alarm_at: 0.05
  pin: null
  search_tool: false
  compaction: cli
  reference:
    budget: null
  guard:
    buffer_tokens: 8192
    max_output_tokens: 0
    tool_output_tokens: null
  archive:
    enabled: true
    mode: incremental
    compress: none
    directory: null
    prefix: "{host}/{repo}"
    encryption: null
    kms_key: null
    at_session_end: true
    keep: null
    warn_bytes: 1GB
"""


@pytest.fixture(params=["C", "Python"], autouse=True)
def loader(request, monkeypatch):
    """Run each test with either of PyYAML's parsers, since the fast one is not built everywhere."""
    if request.param == "Python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.fail("the development environment has PyYAML with libyaml")


def problems(text):
    with pytest.raises(ConfigError) as caught:
        parse(text, "/repo/mala.yaml")
    return caught.value


def only(text):
    error = problems(text)
    assert len(error.problems) == 1, str(error)
    return error.problems[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n# nothing\n",
        "---\n",
        "context:\n",
        "context: null\n",
        "context: {}\n",
        "context: {guard: , archive: }\n",
        EXAMPLE,
    ],
)
def test_defaults(text):
    assert parse(text) == ContextConfig()


def test_bom_and_carriage_returns():
    assert parse("\ufeffcontext:\r\n  window: 1000\r\n").window == 1000


def test_everything_set():
    text = """\
model: opus
context:
  enabled: no
  estimator: cumulative
  window: 1_000_000
  warn_at: 0.5
  tell_agent: off
  compact_at: 0.6
  compact_focus: "keep the plan"
  restart_at: 0.7
  max_restarts: 0
  continuation_template: next.md
  final_at: 1
  finishing_tools: []
  pin: auto
  search_tool: yes
  guard: {buffer_tokens: 256, max_output_tokens: 16384, tool_output_tokens: auto}
  archive:
    enabled: false
    mode: full
    compress: zstd
    directory: s3://bucket/prefix
    at_session_end: false
    keep: {days: 30, bytes: 5GB}
    warn_bytes: null
"""
    config = parse(text)
    assert checked(config) == config
    assert config == ContextConfig(
        enabled=False,
        estimator="cumulative",
        window=1_000_000,
        warn_at=0.5,
        tell_agent=False,
        compact_at=0.6,
        compact_focus="keep the plan",
        restart_at=0.7,
        max_restarts=0,
        continuation_template="next.md",
        final_at=1.0,
        finishing_tools=(),
        pin="auto",
        search_tool=True,
        guard=GuardConfig(256, 16384, "auto"),
        archive=ArchiveConfig(
            enabled=False,
            mode="full",
            compress="zstd",
            directory="s3://bucket/prefix",
            at_session_end=False,
            keep=Retention(days=30, bytes=5_000_000_000),
            warn_bytes=None,
        ),
    )


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("1GB", 10**9),
        ("5 GB", 5 * 10**9),
        ("2GiB", 2**31),
        ("1.5MB", 1_500_000),
        ("500kb", 500_000),
        ("4096", 4096),
        ('"10B"', 10),
        ("1_000", 1000),
    ],
)
def test_sizes(written, size):
    assert parse(f"context: {{archive: {{warn_bytes: {written}}}}}").archive.warn_bytes == size


@pytest.mark.parametrize("written", ["0", "-1GB", "1XB", "GB", ".inf", "true", "1e30", "99999999999999TB", "9" * 5000])
def test_sizes_that_are_none(written):
    problem = only(f"context: {{archive: {{warn_bytes: {written}}}}}")
    assert problem.key == "context.archive.warn_bytes"
    assert "wanted a size such as 500MB" in problem.message


@pytest.mark.parametrize(
    ("old", "new"), [("context_restart_threshold", "context.restart_at"), ("context_limit", "context.window")]
)
def test_removed_fields(old, new):
    error = problems(f"model: x\n{old}: 0.7\n")
    first, second = str(error).split("\n")
    assert first == f"Unknown field '{old}' in mala.yaml"
    assert new in second
    assert "context:" in second
    assert error.problems[0].line == 2
    assert error.path == "/repo/mala.yaml"


@pytest.mark.parametrize(
    ("guard", "key", "left"),
    [
        ("max_output_tokens: 32768, buffer_tokens: 1", "max_output_tokens", "-1"),
        ("max_output_tokens: 40960", "max_output_tokens", "-16,384"),
        ("buffer_tokens: 32768", "buffer_tokens", "0"),
    ],
)
def test_a_reserve_as_large_as_the_window_is_an_error(guard, key, left):
    """Case guard-14: every turn would be a final one."""
    (problem,) = problems(f"context:\n  window: 32768\n  guard: {{{guard}}}\n").problems
    assert problem.key == f"context.guard.{key}"
    assert f"with it {left} tokens of context.window 32,768 are left" in problem.message
    parse(f"context:\n  guard: {{{guard}}}\n")  # of an unknown window nothing can be said


def test_removed_fields_come_first_among_other_problems():
    error = problems("context: {warn_at: 7}\ncontext_restart_threshold: 0.7\ncontext_limit: 5\n")
    assert str(error).startswith("Unknown field 'context_restart_threshold' in mala.yaml\n")
    assert "\nUnknown field 'context_limit' in mala.yaml\n" in str(error)
    assert [problem.key for problem in error.problems] == [
        "context.warn_at",
        "context_restart_threshold",
        "context_limit",
    ]


@pytest.mark.parametrize("field", sorted(ACCEPTED))
def test_fields_of_a_mala_project_are_left_alone(field):
    assert parse(f"{field}: {{a: [1, !odd 2], a: 3, 5: 6}}\n{field}: 2\n") == ContextConfig()


def test_all_problems_at_once_each_with_file_line_key_found_and_wanted():
    error = problems(
        "modell: x\n"
        "context:\n"
        "  enabled: maybe\n"
        "  warn_at: 70\n"
        "  gaurd: {}\n"
        "  guard:\n"
        "    buffer_tokens: -1\n"
        "  archive:\n"
        "    mode: both\n"
    )
    assert [(problem.line, problem.key) for problem in error.problems] == [
        (1, "modell"),
        (3, "context.enabled"),
        (4, "context.warn_at"),
        (5, "context.gaurd"),
        (7, "context.guard.buffer_tokens"),
        (9, "context.archive.mode"),
    ]
    lines = str(error).split("\n")
    assert lines[0] == "6 problems in /repo/mala.yaml:"
    assert "did you mean model?" in lines[1]
    assert lines[2] == '/repo/mala.yaml:3: context.enabled: found the text "maybe", wanted true or false'
    assert lines[3].endswith("found 70, wanted a number above 0 and at most 1, or null (70 % is written 0.7)")
    assert lines[4].endswith("context.gaurd: unknown key, did you mean context.guard?")
    assert "found -1, wanted a whole number of tokens from 1 to 100,000,000" in lines[5]
    assert 'found the text "both", wanted incremental or full' in lines[6]


BAD_VALUES = [
    ("enabled", '"true"', "without quotes: true"),
    ("enabled", "1", "found 1, wanted true or false"),
    ("enabled", "null", "found nothing"),
    ("enabled", "TRUE1", "wanted true or false"),
    ("warn_at", ".nan", "found .nan"),
    ("warn_at", ".inf", "found .inf"),
    ("warn_at", "0", "above 0"),
    ("warn_at", "-0.5", "found -0.5"),
    ("warn_at", "1.01", "found 1.01"),
    ("warn_at", "true", "found true"),
    ("warn_at", "'0.7'", "without quotes: 0.7"),
    ("warn_at", "70%", "70 % is written 0.7"),
    ("warn_at", "[0.7]", "found a list"),
    ("warn_at", "{a: 1}", "found a mapping"),
    ("warn_at", "!odd 0.7", "found the tag !odd"),
    ("window", "1e3", "write 1000"),
    ("window", "1000.0", "write 1000"),
    ("window", "1000.5", "found 1000.5"),
    ("window", "0200000", "write 200000"),
    ("window", "1:30", 'the text "1:30"'),
    ("window", "Auto", "write auto"),
    ("window", "null", "or auto"),
    ("window", "0", "found 0"),
    ("window", "9" * 5000, "…"),
    ("estimator", "characters", "wanted occupancy or cumulative"),
    ("estimator", "null", "found nothing"),
    ("max_restarts", "true", "found true"),
    ("compact_focus", "''", "found an empty text"),
    ("compact_focus", "5", "found 5"),
    ("compact_focus", '"\\0"', "\\x00"),
    ("finishing_tools", "Write", 'found the text "Write"'),
    ("finishing_tools", "[Write, 5]", "item 2 is 5"),
    ("finishing_tools", '["Bash(git *"]', "item 1 is"),
    ("finishing_tools", "[[]]", "item 1 is a list"),
    ("guard", "5", "wanted a mapping of buffer_tokens"),
    ("archive", "[]", "found a list"),
    ("2026-11-28", "1", "unknown key"),
    ("buffer_tokens", "5", "did you mean context.guard.buffer_tokens?"),
    ("zzzzzz", "1", "wanted one of alarm_at, archive, compact_at"),
    ("~", "1", "unknown key"),
    ("[a]", "1", "found a list as a key"),
]


@pytest.mark.parametrize(
    ("key", "written", "words"), BAD_VALUES, ids=[f"{key}-{value[:12]}" for key, value, _ in BAD_VALUES]
)
def test_bad_values(key, written, words):
    problem = only(f"context:\n  ? {key}\n  : {written}\n")
    assert words in problem.message
    assert problem.line in {2, 3}
    assert len(problem.message) < 500


def test_secondary_sections():
    assert only("context: {archive: {keep: {}}}").message.startswith("found nothing in it, wanted at least one of")
    assert only("context: {archive: {keep: {days: 0}}}").key == "context.archive.keep.days"
    assert parse("context: {archive: {keep: {days: 7}}}").archive.keep == Retention(7, None)
    assert only("context: !odd {}").message.startswith("found the tag !odd")


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("warn_at: 0.8\n  compact_at: 0.7", "context.compact_at", 3),
        ("compact_at: 0.8\n  final_at: 0.75", "context.final_at", 3),
        ("restart_at: 0.9\n  final_at: 0.8", "context.final_at", 3),
        ("final_at: 0.8\n  restart_at: 0.9", "context.final_at", 2),
        ("subagents: {warn_at: 0.9, final_at: 0.8}", "context.subagents.final_at", 2),
        ("compact_at: 0.6", "context.compact_at", 2),
    ],
)
def test_thresholds_out_of_order(text, key, line):
    problem = only(f"context:\n  {text}\n")
    assert (problem.key, problem.line) == (key, line)
    assert "or more, since context." in problem.message


def test_thresholds_in_order_may_be_equal_or_absent():
    text = "context: {warn_at: 0.7, compact_at: 0.7, restart_at: 0.7, final_at: 0.7}"
    assert parse(text).final_at == 0.7
    assert parse("context: {warn_at: null, final_at: 0.1}").final_at == 0.1


def test_a_threshold_that_is_wrong_is_not_compared():
    assert [problem.key for problem in problems("context: {warn_at: 9, compact_at: 0.6}").problems] == [
        "context.warn_at"
    ]


def test_duplicate_keys():
    problem = only("context:\n  warn_at: 0.5\n  warn_at: 0.6\n")
    assert (problem.key, problem.line, problem.message) == (
        "context.warn_at",
        3,
        "found twice, first on line 2; keep one",
    )
    assert only("context: {}\ncontext: {}\n").key == "context"
    assert only("context: {archive: {mode: full, 'mode': full}}").key == "context.archive.mode"


def test_anchors_aliases_and_merge_keys():
    text = "coder_options: &base {warn_at: 0.5, final_at: 0.9}\ncontext:\n  <<: *base\n  warn_at: 0.6\n"
    assert parse(text) == ContextConfig(warn_at=0.6, final_at=0.9)
    assert parse("setup_files: [&a {warn_at: 0.5}, &b {warn_at: 0.6}]\ncontext: {<<: [*a, *b]}\n").warn_at == 0.5
    assert only("context: {<<: 5}").message.startswith("unknown key")
    assert only("context: {<<: []}").message.startswith("unknown key")
    assert only("context: {<<: [5]}").message.startswith("unknown key")


def bomb(levels):
    lines = ["l0: &l0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"l{n}: &l{n} [{','.join([f'*l{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "commands:\n" + "\n".join("  " + line for line in lines) + "\n"


@pytest.mark.parametrize("text", [bomb(9), "context: {<<: [" + "a: &a {b: 1}\n" + "]}", "[" * 5000, "- " * 5000])
def test_bombs(text):
    error = problems(text)
    assert error.problems[0].line is not None


def test_bounds_are_said():
    assert f"{MAX_COPIES:,} values" in only(bomb(5)).message
    assert f"deeper than {MAX_DEPTH} levels" in only("[" * (MAX_DEPTH + 1)).message
    assert f"{MAX_CHARACTERS:,} characters" in only("#" * (MAX_CHARACTERS + 1)).message
    assert parse(bomb(3)) == ContextConfig()


def test_a_long_chain_of_merges_needs_no_recursion():
    chain = "\n".join(f"  k{n}: &k{n} {{<<: *k{n - 1}, x{n}: 1}}" for n in range(1, 60))
    assert parse(f"commands:\n  k0: &k0 {{x: 1}}\n{chain}\n") == ContextConfig()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("context:\n\twarn_at: 1\n", 2, "tab"),
        ("context: [\n", None, "not YAML"),
        ("a: 'x\n", None, "not YAML"),
        ("- 1\n- 2\n", 1, "found a list at the top level"),
        ("just words\n", 1, 'found the text "just words" at the top level'),
        ("5\n", 1, "found 5 at the top level"),
        ("!odd\na: 1\n", 1, "found the tag !odd at the top level"),
        ("context: {}\n---\ncontext: {}\n", 2, "expected a single document"),
        ("context: *none\n", 1, "undefined alias"),
        ("context: &c {enabled: *c}\n", 1, "holds itself"),
        ("context: \x00\n", None, "not YAML"),
        ("a: b\nc: \ud800\n", 2, "surrogate"),
        ('context: "\\UFFFFFFFF"\n', None, "not YAML"),
        ("%YAML 99999999999999999999999.1\n---\na: 1\n", None, "not YAML"),
    ],
)
def test_malformed(text, line, words):
    problem = only(text)
    assert words in problem.message
    if line is not None:
        assert problem.line == line


def test_messages_are_safe_for_a_terminal():
    error = problems('context:\n  "\\e[31m\\u202e": 1\n  estimator: "\\e]0;x\\a"\n"\\e[1mkey": 2\n')
    assert len(error.problems) == 3
    assert not set(str(error)) & {"\x1b", "\x07", "\u202e"}


def test_keys_that_yaml_reads_as_something_else():
    assert only("on: 1\n").key == "on"
    assert only("5: 1\n").key == "5"


def test_load_config(tmp_path):
    assert load_config(tmp_path) == ContextConfig()
    assert load_config(tmp_path / "mala.yaml") == ContextConfig()
    assert load_config(str(tmp_path / "nowhere")) == ContextConfig()
    file = tmp_path / "mala.yaml"
    file.write_bytes(b"\xef\xbb\xbfcontext: {window: 5}\n")
    assert load_config(tmp_path).window == load_config(str(file)).window == 5


def test_load_config_names_the_file(tmp_path):
    file = tmp_path / "mala.yaml"
    file.write_text("context:\n  window: big\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    assert caught.value.path == str(file)
    assert str(caught.value).startswith(f"{file}:2: context.window: found")


@pytest.mark.parametrize("data", [b"\xff\xfec\x00", b"a: 1\nb: \xe9\n"])
def test_not_utf8(tmp_path, data):
    (tmp_path / "mala.yaml").write_bytes(data)
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        load_config(tmp_path)
    assert caught.value.problems[0].line == data.count(b"\n", 0, -2) + 1


def make_folder(path):
    path.mkdir()


def make_dangling(path):
    path.symlink_to("nothing-there")


def make_loop(path):
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [make_folder, os.mkfifo, make_dangling, make_loop])
def test_unreadable(tmp_path, make):
    make(tmp_path / "mala.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


def test_no_permission(tmp_path, monkeypatch):
    (tmp_path / "mala.yaml").write_text("")

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mala_context.config.reading.read_regular", refuse)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        load_config(tmp_path)


def test_a_file_without_end(tmp_path):
    (tmp_path / "mala.yaml").write_text("#" * (5 * MAX_CHARACTERS))
    with pytest.raises(ConfigError, match="more than"):
        load_config(tmp_path)


@pytest.mark.parametrize("directory", [None, "/var/archives", "archives", "~/archives"])
def test_a_folder_for_archives_is_no_object_store(directory):
    assert target_of(ArchiveConfig(directory=directory)) is None
    assert not is_address(directory)


def test_an_object_store_with_all_that_can_be_said_of_it():
    text = "context:\n  archive: {directory: s3://b/p/, prefix: 'team/{repo}', encryption: 'aws:kms', kms_key: k1}\n"
    target = target_of(parse(text).archive)
    assert (target.address, target.prefix, target.encryption, target.kms_key) == (
        "s3://b/p",
        "team/{repo}",
        "aws:kms",
        "k1",
    )


@pytest.mark.parametrize("directory", ["gs://b", "az://c/p", "file:///mnt/archives", "memory://", "s3://b"])
def test_addresses_that_are_taken(directory):
    assert target_of(parse(f"context: {{archive: {{directory: '{directory}'}}}}").archive).prefix == "{host}/{repo}"


@pytest.mark.parametrize(
    "directory",
    [
        "s3://AKIA:hunter2@bucket/p",
        "s3://hunter2@bucket",
        "s3://user:hun/hunter2@bucket",
        "az://container?sig=hunter2",
        "s3://bucket/p#hunter2",
        "s3://AKIA:hunter2",
        "ftp://x:hunter2@host/",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(directory):
    with pytest.raises(ConfigError, match=r"mala.yaml:1: context.archive.directory: found the text") as raised:
        parse(f"context: {{archive: {{directory: '{directory}'}}}}")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("archive", "key", "words"),
    [
        ("directory: s3:///p", "directory", "the bucket is missing"),
        ("directory: 'file://mnt/x'", "directory", "three slashes"),
        ("directory: 's3://b/../c'", "directory", "plain characters"),
        ("directory: 'http://b/c'", "directory", "begins with one of s3://"),
        ("directory: s3://b, prefix: '{user}'", "prefix", "{host} and {repo} among them"),
        ("directory: s3://b, prefix: '../x'", "prefix", "{host} and {repo} among them"),
        ("directory: s3://b, encryption: rot13", "encryption", "AES256 or aws:kms"),
        ("directory: gs://b, encryption: AES256", "encryption", "needs an s3:// address"),
        ("encryption: AES256", "encryption", "needs an s3:// address"),
        ("directory: s3://b, kms_key: k", "kms_key", "needs encryption: aws:kms"),
    ],
)
def test_what_is_wrong_with_an_object_store(archive, key, words):
    with pytest.raises(ConfigError) as raised:
        parse(f"context: {{archive: {{{archive}}}}}")
    (problem,) = raised.value.problems
    assert problem.key == f"context.archive.{key}"
    assert words in problem.message


def test_the_table_is_the_records():
    paths = {key.path for key in SCHEMA}
    for section, record in SECTIONS.items():
        names = {f"{section}.{item.name}" for item in dataclasses.fields(record)}
        assert names <= paths | set(SECTIONS)
        assert {path for path in paths if path.rpartition(".")[0] == section} <= names
    for key in SCHEMA:
        assert setting(ContextConfig(), key.path) == key.default


def as_written(value):
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return '[Write, Edit, TodoWrite, "Bash(git *)"]'
    return {1_000_000_000: "1GB", "{host}/{repo}": '"{host}/{repo}"'}.get(value, str(value))


@pytest.mark.parametrize("key", SCHEMA, ids=lambda key: key.path)
def test_the_default_is_right_for_its_key(key):
    lines = [f"{'  ' * depth}{part}:" for depth, part in enumerate(key.path.split("."))]
    text = "\n".join(lines) + f" {as_written(key.default)}\n"
    if key.section == "context.archive.keep":
        assert only(text).key == key.section
    else:
        assert parse(text) == ContextConfig()


def test_the_reference_has_every_key():
    page = (ROOT / "docs/reference/configuration.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `context.")]
    assert rows == [f"| `{key.path}` | {key.kind.words} | `{as_written(key.default)}` | {key.doc} |" for key in SCHEMA]
    assert EXAMPLE in page


def test_parsing_imports_yaml_only_when_it_is_used():
    code = """
import sys
import mala_context.config as config
assert "yaml" not in sys.modules
config.parse("")
assert "yaml" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


NAMES = st.sampled_from(
    [part for key in SCHEMA for part in key.path.split(".")] + ["context_limit", "model", "x", "<<"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["auto", "1GB", "0.5", "1e3", "zstd", math.nan, 0.7, 0.2])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
FRAGMENTS = st.sampled_from(
    [
        *[
            "context",
            ": ",
            ":\n  ",
            "\n",
            "- ",
            "[",
            "]",
            "{",
            "}",
            ", ",
            "&a ",
            "*a",
            "<<: ",
            "!!int ",
            "!x ",
            "\t",
            "'",
        ],
        *['"', "#", "---\n", "...\n", "%YAML 1.1\n", "| ", "? ", "0.5", "warn_at", "guard", "null", "\\", "\ufeff"],
    ]
)


def parses_or_says_why(text):
    try:
        config = parse(text, "mala.yaml")
    except ConfigError as error:
        config, said = ContextConfig(), error.problems
        failed = True
    else:
        said, failed = (), False
    assert failed == bool(said)
    assert all(problem.message for problem in said)
    lines = [problem.line or 0 for problem in said]
    assert lines == sorted(lines)
    thresholds = [config.warn_at, config.compact_at, config.restart_at, config.final_at]
    kept = [value for value in thresholds if value is not None]
    assert kept == sorted(kept)
    assert hash(config)


class TestAnyText:
    @given(st.text())
    def test_characters(self, text):
        parses_or_says_why(text)

    @given(st.lists(FRAGMENTS, max_size=30).map("".join))
    def test_fragments(self, text):
        parses_or_says_why(text)

    @given(st.dictionaries(NAMES, VALUES, max_size=4))
    def test_documents(self, document):
        parses_or_says_why(yaml.safe_dump({"context": document}))


# -- configurations that a program makes ------------------------------------------------------------------------------


MADE_WRONG = [
    (ContextConfig(warn_at=70), "context.warn_at: found 70, wanted a number above 0 and at most 1"),
    (ContextConfig(warn_at=math.nan), "context.warn_at: found nan"),
    (ContextConfig(warn_at="0.7"), 'context.warn_at: found the text "0.7"'),
    (ContextConfig(enabled="no"), 'context.enabled: found the text "no"'),
    (ContextConfig(enabled=1), "context.enabled: found 1"),
    (ContextConfig(window=-5), "context.window: found -5"),
    (ContextConfig(window=True), "context.window: found True"),
    (ContextConfig(finishing_tools="Write"), 'context.finishing_tools: found the text "Write", wanted a list'),
    (ContextConfig(finishing_tools=("Write", 5)), "item 2 is 5"),
    (ContextConfig(compact_at=0.5), "context.compact_at: found 0.5, wanted 0.7 or more, since context.warn_at is 0.7"),
    (ContextConfig(restart_at=0.95, final_at=0.9), "context.final_at: found 0.9, wanted 0.95 or more"),
    (ContextConfig(alarm_at=object), "context.alarm_at: found "),
    (ContextConfig(guard=5), "context.guard: found 5, wanted a mapping"),
    (ContextConfig(guard=GuardConfig(tool_output_tokens=-1)), "context.guard.tool_output_tokens: found -1"),
    (ContextConfig(window=9_000, guard=GuardConfig(buffer_tokens=9_000)), "context.guard.buffer_tokens: found 9,000"),
    (ContextConfig(archive=ArchiveConfig(keep=Retention())), "context.archive.keep: found nothing in it"),
    (ContextConfig(archive=ArchiveConfig(keep={"days": 3})), "context.archive.keep: found "),
    (ContextConfig(archive=ArchiveConfig(encryption="AES256")), "context.archive.encryption: needs an s3:// address"),
    (ContextConfig(archive=ArchiveConfig(directory=b"/archives")), "context.archive.directory: found "),
]


@pytest.mark.parametrize(("config", "words"), MADE_WRONG, ids=[words[:40] for _, words in MADE_WRONG])
def test_a_program_makes_the_same_mistakes_as_a_file(config, words):
    with pytest.raises(ConfigError) as caught:
        checked(config)
    assert words in str(caught.value)
    assert str(caught.value).startswith("ContextConfig: ")
    assert caught.value.path is None
    assert {problem.line for problem in caught.value.problems} == {None}


def test_all_mistakes_of_a_program_at_once():
    with pytest.raises(ConfigError, match=r"^2 problems in ContextConfig:\n") as caught:
        checked(ContextConfig(warn_at=70, window=0))
    assert {problem.key for problem in caught.value.problems} == {"context.warn_at", "context.window"}


def test_kinds_of_values_that_only_a_program_has(tmp_path):
    class Share(float):
        pass

    archive = ArchiveConfig(directory=tmp_path, warn_bytes="1GB")
    given = ContextConfig(warn_at=Share(0.5), final_at=1, finishing_tools=["Write"], subagents=None, archive=archive)
    wanted = ContextConfig(
        warn_at=0.5, final_at=1.0, finishing_tools=("Write",), archive=ArchiveConfig(directory=str(tmp_path))
    )
    assert checked(given) == wanted


FIELDS = {item.name for item in dataclasses.fields(ContextConfig)}


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_program_and_a_file_are_checked_alike(values):
    text = yaml.safe_dump({"context": {name: value for name, value in values.items() if name in FIELDS}})
    try:
        wanted = parse(text)
    except ConfigError:
        return
    assert checked(wanted) == wanted


# -- hints and unreadable places ---------------------------------------------------------------------------------------

ODD_NUMBERS = [
    "0o1",
    "1e-320",
    "0.001%",
    "0.00001%",
    "1.0000001",
    "1e1",
    "1e-5",
    "\N{ARABIC-INDIC DIGIT ZERO}.\N{ARABIC-INDIC DIGIT SEVEN}",
    "'0.7'",
    "70 %",
    "7_0",
    "1_000.0",
]


@pytest.mark.parametrize("key", ["warn_at", "window", "max_restarts", "enabled"])
@pytest.mark.parametrize("written", [*ODD_NUMBERS, "TRUE ", "'on'", "Auto", "'0o1'", "'1e-3'", "'a: b'", "'['", "'#'"])
def test_a_hint_is_right(key, written):
    """What a hint says can be written, and is not what was written."""
    try:
        parse(f"context: {{{key}: {written}, window: 1000}}" if key != "window" else f"context: {{{key}: {written}}}")
    except ConfigError as error:
        (problem,) = error.problems
        hint = re.search(r"\((?:write|without quotes:|.* % is written) (.*)\)$", problem.message)
        if hint:
            assert hint[1] != written
            parse(f"context: {{{key}: {hint[1]}}}")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ELOOP, errno.ENAMETOOLONG, errno.ESTALE])
def test_a_file_that_may_be_there_is_no_missing_file(tmp_path, monkeypatch, number):
    def refuse(path, **_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("mala_context.config.reading.os.lstat", refuse)
    with pytest.raises(ConfigError, match=f"mala.yaml: cannot be read: {re.escape(os.strerror(number))}"):
        load_config(tmp_path)


@pytest.mark.parametrize("path", ["nowhere", "nowhere/mala.yaml", "file/mala.yaml", "a\0b"])
def test_a_missing_file_is_the_defaults(tmp_path, path):
    (tmp_path / "file").write_text("")
    assert load_config(os.path.join(tmp_path, path)) == ContextConfig()
