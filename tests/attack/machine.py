"""A machine for one case: a home, a repository, a session. What runs on it is held to what users rely on."""

import contextlib
import itertools
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback

from tests.attack import inputs

HOOK = [os.path.realpath(sys.executable), "-I", "-S", str(pathlib.Path(__file__).parents[2] / "hooks" / "hook.py")]
STATUSES = {0, 1, 2, 3, 130}
SECONDS = 120
"""No command may take longer, on a busy machine too."""
HOOK_SECONDS = 10
SID = "0f8fad5b-d9cb-469f-a165-70867728950e"
EVENTS = ("PreCompact", "PostCompact", "SessionStart", "SessionEnd", "UserPromptSubmit")
READERS = (
    "archives list|archives list --json|archives show {sid}|archives show {sid} --json|archives cat {sid}|config check"
    "|archives verify|archives verify --json|archives lost {sid}|archives lost {sid} --json|archives search checks"
    "|archives search checks --json|archives prune --days 1|archives restore {sid} --dry-run|doctor --no-session --json"
    "|replay {path}|replay {path} --format json --trace|replay --totals|audit {path} --json|report {path} -o {out}"
    "|watch --once|watch --once --json|config show --json|simulate --policy mala.yaml --json {path}|init"
)
"""Commands that only look: they leave everything as it was (an index for search and the file asked for apart)."""


class Fault(Exception):  # noqa: N818
    """Something on which a user relies does not hold."""


def strict_json(said, what):
    """JSON as every language reads it."""

    def no_number(word):
        raise ValueError(word)

    try:
        return json.loads(said, parse_constant=no_number)
    except ValueError as error:
        raise Fault(f"{what}: no JSON ({error}): {said[:300]!r}") from None


class Machine:
    """Everything lies below `top`; `rng` decides all that happens."""

    def __init__(self, top: str, rng: random.Random):
        self.top, self.rng, self.log = top, rng, []
        self.home, self.runs, self.claude, self.repo, self.foreign = (
            os.path.join(top, name) for name in ("home", "runs", "claude", "repo", "foreign")
        )
        self.folder = os.path.join(self.claude, "projects", self.repo.replace("/", "-"))
        for each in (self.home, self.repo, self.folder, self.foreign):
            os.makedirs(each)
        self.sid, self.rows = SID, 0
        self.path = os.path.join(self.folder, f"{SID}.jsonl")
        self.out = os.path.join(top, "out.html")
        self.env = {
            "HOME": self.home,
            "MALA_RUNS_DIR": self.runs,
            "CLAUDE_CONFIG_DIR": self.claude,
            "NO_COLOR": "1",
            "PATH": os.environ["PATH"],
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
            "BROWSER": "true",
            "LANG": "C.UTF-8",
            **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},  # to attack another checkout
        }
        self.popen, self.prefix = {}, []
        self.write("mala.yaml", b"context:\n  window: 200000\n")

    def pick(self, alternatives):
        """One of some words between bars."""
        return self.rng.choice(alternatives.split("|"))

    def write(self, name, data):
        with open(os.path.join(self.repo, name), "wb") as file:
            file.write(data)

    def grow(self, count=12, odd=0.0):
        """Write more rows of the session, as the CLI does."""
        data = inputs.dump(inputs.rows(self.rng, self.sid, count, first=self.rows, odd=odd))
        self.rows += count
        with open(self.path, "ab") as file:
            file.write(data)

    def transcript(self):
        with open(self.path, "rb") as file:
            return file.read()

    def run(self, command, given=b"", *, limit=SECONDS, statuses=STATUSES, env=None, **popen):
        """Run a program, and check what holds for every program of ours."""
        self.log.append(" ".join(map(repr, command[-6:])))
        what = self.log[-1]
        options = {"cwd": self.repo, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **self.popen, **popen}
        if "stdin" not in options:
            options["input"] = given
        try:
            done = subprocess.run([*self.prefix, *command], env={**self.env, **(env or {})}, timeout=SECONDS, **options)
        except subprocess.TimeoutExpired:
            raise Fault(f"{what}: hangs for {SECONDS} s") from None
        for stream in (done.stdout or b"", done.stderr or b""):
            if b"Traceback (most recent" in stream or b"Fatal Python error" in stream:
                raise Fault(f"{what}: traceback:\n{stream.decode(errors='replace')[-1500:]}")
        if done.returncode not in statuses:
            raise Fault(f"{what}: status {done.returncode}: {(done.stderr or b'')[-500:]!r}")
        return done

    def cli(self, *words, given=b"", printable=True, **options):
        """Run `mala-context`: its statuses, JSON that is JSON, no control characters, a word on every failure."""
        done = self.run([inputs.MALA, *words], given, **options)
        what, said = self.log[-1], done.stdout or b""
        if done.returncode and not said.strip() and not (done.stderr or b"").strip():
            raise Fault(f"{what}: status {done.returncode} without a word")
        raw = words[:2] == ("archives", "cat") or "-" in words or "statusline" in words or words[0] == "hook"
        if "--json" in words and done.returncode in {0, 1} and said.strip():
            whole = said.decode("utf-8")
            if words[0] == "watch" or words[:2] == ("archives", "show"):
                for line in whole.splitlines():
                    strict_json(line, what)
            else:
                strict_json(whole, what)
        elif printable and not raw and "--format" not in words:
            for stream in (said, done.stderr or b""):
                odd = [
                    each for each in stream.decode("utf-8", "replace") if not each.isprintable() and each not in "\n\t"
                ]
                if odd:
                    raise Fault(f"{what}: control characters {odd[:5]!r}: {stream[:800]!r}")
        return done

    def look(self, words, **options):
        """Run a command that only looks: nothing anywhere changes but an index for search, and `out`."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.out)
        before = self.tree()
        done = self.cli(*words, **options)
        if (after := self.tree()) != before:
            changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
            raise Fault(f"{self.log[-1]}: changes {changed[:5]}")
        return done

    def any_look(self, **options):
        words = self.pick(READERS).split()
        return self.look([word.format(sid=self.sid, path=self.path, out=self.out) for word in words], **options)

    def given(self, event, **fields):
        found = {"hook_event_name": event, "session_id": self.sid, "transcript_path": self.path, "cwd": self.repo}
        return {
            **found,
            "trigger": "auto",
            "source": "startup",
            "reason": "other",
            "compact_summary": "Done.",
            **fields,
        }

    def hook(self, event="PreCompact", given=None, **options):
        """Call a hook as the CLI does: it answers in time with one JSON object, and says a failure in one line."""
        command = [*HOOK, "warn"] if event == "UserPromptSubmit" else HOOK
        if given is None:
            given = json.dumps(self.given(event)).encode()
        began = time.monotonic()
        done = self.run(command, given, statuses=options.pop("statuses", {0}), **options)
        if (took := time.monotonic() - began) > HOOK_SECONDS + 5:  # the start of a process on a busy machine
            raise Fault(f"hook {event}: {took:.1f} s")
        if done.stdout is not None and done.returncode == 0:
            plain = event == "PostCompact" and done.stdout.startswith(b"archived; undo with ")
            if not plain and not isinstance(strict_json(done.stdout, f"hook {event}"), dict):
                raise Fault(f"hook {event}: {done.stdout!r}")
            if b'"block"' in done.stdout or b'"deny"' in done.stdout:
                raise Fault(f"hook {event} blocks: {done.stdout!r}")
        if done.stderr and done.stderr.count(b"\n") != 1:
            raise Fault(f"hook {event}: not one line: {done.stderr!r}")
        return done

    def compact(self, **options):
        """The hooks of one compaction; returns what was said of a failure."""
        return self.hook("PreCompact", **options).stderr + self.hook("PostCompact", **options).stderr

    def tree(self):
        """Kind, mode, owner, time and contents of everything; folders of search indexes are ours and apart."""
        found = {}
        for folder, folders, files in os.walk(self.top):
            folders[:] = [name for name in folders if name not in {"search", "home"}]
            for name in [*files, "."]:
                path = os.path.join(folder, name)
                try:
                    status = os.lstat(path)
                except PermissionError:  # in a folder that modes keep this user out of
                    continue
                data = b""
                if stat.S_ISREG(status.st_mode) and status.st_size < 10**7 and os.access(path, os.R_OK):
                    with open(path, "rb") as file:
                        data = file.read()
                if path not in {self.out, os.path.join(self.top, ".")}:
                    found[path] = (status.st_mode, status.st_uid, 0 if name == "." else status.st_mtime_ns, data)
        return found

    def private(self):
        """Every file and folder that we keep is for its owner alone."""
        for folder, folders, files in os.walk(self.runs):
            for name in [*folders, *files]:
                status = os.lstat(os.path.join(folder, name))
                if status.st_mode & 0o077 and not stat.S_ISLNK(status.st_mode):
                    raise Fault(f"{os.path.join(folder, name)}: mode {stat.S_IMODE(status.st_mode):o}")

    def whole(self, *, said=b"", may_fail=False):
        """What is archived is the transcript, byte for byte, or somebody was told why not."""
        done = self.cli("archives", "cat", self.sid)
        want = self.transcript()
        if done.returncode == 0 and done.stdout == want:
            return
        if said.strip() or (may_fail and done.returncode and done.stderr.strip()):
            return
        words = f"status {done.returncode}, {len(done.stdout)} of {len(want)} bytes, {done.stderr[-300:]!r}"
        raise Fault(f"archive is not the transcript, and nobody said why: {words}")

    def pieces(self, pattern="*"):
        return sorted(map(str, pathlib.Path(self.runs).glob(f"*/archives/{pattern}")))


@contextlib.contextmanager
def limits(**values):
    """A `preexec_fn` with limits of `resource`, a umask and ignored signals."""

    def prepare():
        os.umask(values.get("umask", 0o022))
        for name, value in values.items():
            if name != "umask":
                resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))

    yield prepare


def case(kind, kinds, seed):
    """Run one case; returns the fault, with what was run before it, or nothing."""
    rng = random.Random(f"{kind}:{seed}")
    top = tempfile.mkdtemp(prefix="mala-attack-")
    machine = Machine(top, rng)
    try:
        kinds[kind](machine)
    except Exception as error:  # noqa: BLE001  # what the public API raises is a fault too
        fault = error if isinstance(error, Fault) else traceback.format_exc()
        return f"{fault}\n    after: " + "\n           ".join(machine.log[-8:])
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", top], stderr=subprocess.DEVNULL)
        shutil.rmtree(top, ignore_errors=True)
    return None


def attack(kinds, names, seed, seconds, say):
    """Run cases of the kinds in turn until the time is over; returns how many ran, and the faults."""
    end, counts, faults = time.monotonic() + seconds, dict.fromkeys(names, 0), []
    for number in itertools.count():
        for name in names:
            if time.monotonic() > end:
                return counts, faults
            if fault := case(name, kinds, f"{seed}-{number}"):
                faults.append(f"python -m tests.attack --case {name}:{seed}-{number}\n    {fault}")
                say(faults[-1])
            counts[name] += 1
    raise AssertionError(signal.SIGKILL)  # never reached: the count has no end
