"""`mala-context config`."""

import json
import os
import subprocess
import sys

import pytest

from mala_context.config import SCHEMA, ContextConfig, load_config

WRONG = "context:\n  warn_at: 70\n  oops: 1\n  guard:\n    buffer_tokens: -1\n"


def run(*args, cwd, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "mala_context.cli", "config", *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


class TestShow:
    def test_without_a_file_all_is_default(self, tmp_path):
        lines = run("show", cwd=tmp_path).stdout.splitlines()
        assert lines[0] == "no mala.yaml; all values are defaults:"
        assert len(lines) == 1 + len(SCHEMA)
        assert "context.warn_at                   default   0.7" in lines
        assert max(map(len, lines)) <= 100

    def test_each_value_says_where_it_comes_from(self, tmp_path):
        (tmp_path / "mala.yaml").write_text("# words\ncontext:\n  warn_at: 0.5\n  archive:\n    keep: {days: 3}\n")
        found = json.loads(run("show", "--json", str(tmp_path), cwd="/").stdout)
        assert found["path"] == str(tmp_path / "mala.yaml")
        values = found["values"]
        assert values["context.warn_at"] == {"value": 0.5, "line": 3, "from": f"{tmp_path}/mala.yaml:3"}
        assert values["context.archive.keep.days"] == {"value": 3, "line": 5, "from": f"{tmp_path}/mala.yaml:5"}
        assert values["context.compact_at"] == {"value": None, "line": None, "from": "default"}
        assert list(values) == [key.path for key in SCHEMA]
        text = run("show", "mala.yaml", cwd=tmp_path).stdout
        assert text.startswith("mala.yaml:\n")
        assert "context.warn_at                   line 3    0.5\n" in text

    def test_a_file_that_is_wrong(self, tmp_path):
        (tmp_path / "mala.yaml").write_text(WRONG)
        done = run("show", cwd=tmp_path, status=3)
        assert done.stdout == ""
        assert "3 problems" in done.stderr

    def test_words_of_others_do_nothing_to_a_terminal(self, tmp_path):
        (tmp_path / "mala.yaml").write_text('context:\n  compact_focus: "\\e[2J"\n')
        assert "\x1b" not in run("show", cwd=tmp_path).stdout


class TestCheck:
    def test_all_at_once(self, tmp_path):
        (tmp_path / "mala.yaml").write_text(WRONG)
        text = run("check", cwd=tmp_path, status=1).stdout
        assert text.startswith("3 problems in ./mala.yaml:\n./mala.yaml:2: context.warn_at: found 70")
        (found,) = json.loads(run("check", "--json", cwd=tmp_path, status=1).stdout)
        assert [(each["key"], each["line"]) for each in found["problems"]] == [
            ("context.warn_at", 2),
            ("context.oops", 3),
            ("context.guard.buffer_tokens", 5),
        ]

    def test_what_is_right(self, tmp_path):
        (tmp_path / "mala.yaml").write_text("context:\n  warn_at: 0.5\n")
        assert run("check", cwd=tmp_path).stdout == "./mala.yaml: valid\n"
        assert json.loads(run("check", "--json", cwd=tmp_path).stdout) == [
            {"path": "./mala.yaml", "ok": True, "problems": []}
        ]

    def test_no_file_is_no_mistake(self, tmp_path):
        assert run("check", cwd=tmp_path).stdout == ".: no mala.yaml, the defaults are in force\n"

    def test_several(self, tmp_path):
        (tmp_path / "a.yaml").write_text("context:\n  warn_at: 0.5\n")
        (tmp_path / "b.yaml").write_text(WRONG)
        lines = run("check", "a.yaml", "b.yaml", cwd=tmp_path, status=1).stdout.splitlines()
        assert lines[:2] == ["a.yaml: valid", "3 problems in b.yaml:"]

    def test_what_is_not_there(self, tmp_path):
        done = run("check", "none.yaml", cwd=tmp_path, status=3)
        assert done.stderr == "mala-context: none.yaml: No such file or directory\n"

    def test_what_cannot_be_read(self, tmp_path):
        (tmp_path / "loop").symlink_to("loop")
        (found,) = json.loads(run("check", "loop", "--json", cwd=tmp_path, status=3).stdout)
        assert "cannot be read" in found["problems"][0]["message"]

    def test_what_is_no_text(self, tmp_path):
        (tmp_path / "mala.yaml").write_bytes(b"context: \xff\n")
        assert "is not UTF-8" in run("check", cwd=tmp_path, status=1).stdout


class TestInit:
    def test_it_means_the_defaults(self, tmp_path):
        assert run("init", cwd=tmp_path).stdout == "./mala.yaml written\n"
        assert load_config(tmp_path) == ContextConfig()
        assert os.listdir(tmp_path) == ["mala.yaml"]

    def test_what_is_there_stays(self, tmp_path):
        (tmp_path / "mala.yaml").write_text("mine")
        done = run("init", cwd=tmp_path, status=3)
        assert "--force" in done.stderr
        assert (tmp_path / "mala.yaml").read_text() == "mine"
        run("init", "--force", cwd=tmp_path)
        assert load_config(tmp_path) == ContextConfig()

    def test_another_name_and_standard_output(self, tmp_path):
        run("init", "other.yaml", cwd=tmp_path)
        assert run("init", "--stdout", cwd=tmp_path).stdout == (tmp_path / "other.yaml").read_text()

    def test_a_place_that_is_not_there(self, tmp_path):
        assert "none/mala.yaml: No such file" in run("init", "none/mala.yaml", cwd=tmp_path, status=3).stderr


@pytest.mark.parametrize("args", [("show", "none"), ("check", "none"), ("init", "none/x")])
def test_missing_input_is_3(tmp_path, args):
    assert run(*args, cwd=tmp_path, status=3).stdout == ""
