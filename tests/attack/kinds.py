"""The kinds of attack. Each takes a machine, does what its `rng` says, and raises `Fault` where a promise breaks."""

import asyncio
import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import mala_context as m
from tests.attack import inputs
from tests.attack.machine import EVENTS, HOOK, Fault, Machine, limits

WRITERS = (
    "archives verify --repair|archives catch-up|archives pack|archives prune --days 1 --yes|archives import|config init"
)
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


OTHER = b'{"type":"user","message":{"content":"other"}}\n'


def archived(a: Machine):
    """A session with some pieces."""
    for _ in range(a.rng.randrange(1, 4)):
        a.grow(a.rng.randrange(4, 30))
        a.compact()
    a.whole()


def files(a: Machine):
    """Transcripts, pieces, manifests and configurations that are damaged, missing, or no files."""
    rng = a.rng
    archived(a)
    settings = [os.path.join(a.repo, "mala.yaml"), os.path.join(a.claude, "settings.json")]
    target = pathlib.Path(rng.choice([a.path, *settings, *a.pieces()[:4]]))
    other = pathlib.Path(a.foreign, "other")
    other.write_bytes(OTHER)
    before = target.read_bytes() if target.is_file() else b"{}"
    target.unlink(missing_ok=True)
    damaged = rng.random() < 0.7
    if damaged:
        target.write_bytes(inputs.damage(rng, before))
        target.chmod(0o600)
    else:
        inputs.no_file(rng, target, other)
    for _ in range(3):
        a.any_look()
    said = a.hook(rng.choice(EVENTS)).stderr
    if rng.random() < 0.5:
        a.cli(*a.pick(WRITERS).split())
    if other.read_bytes() != OTHER:
        raise Fault("somebody else's file changed")
    if os.path.isfile(a.path) and not os.path.islink(a.path):
        if str(target) != a.path:
            a.grow()
        said += a.hook("SessionEnd").stderr
        if damaged and target.parent.name == "archives":  # whatever a piece or a manifest holds, the session heals
            if b"not what its hash says" in a.cli("archives", "verify").stdout and "manifest" in target.name:
                # But for another hash of an intact piece: `verify` names the piece, and all of its bytes are there.
                if a.cli("archives", "cat", "--salvage", a.sid).stdout != a.transcript():
                    raise Fault("a manifest's hash costs bytes")
            else:
                a.whole()
        else:
            a.whole(said=said, may_fail=True)


def modes(a: Machine):
    """Any umask and modes, folders of others, a user who is not root."""
    rng = a.rng
    a.grow()
    if os.geteuid() == 0 and rng.random() < 0.5:
        a.prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]  # modes count for this root too
    with limits(umask=rng.choice([0, 0o022, 0o077, 0o777, 0o277])) as prepare:
        a.popen["preexec_fn"] = prepare
        if rng.random() < 0.3:
            os.makedirs(a.runs, mode=rng.choice([0o777, 0o755, 0o1777]))
        a.hook(rng.choice(EVENTS[1:]))
        said = a.compact()
        a.private()
        a.whole(said=said)
        target, mode = rng.choice([a.runs, a.repo, a.folder, a.claude, a.path, *a.pieces()]), rng.randrange(0o1000)
        os.chmod(target, mode | 0o100 if target == a.repo else mode)  # where programs start
        a.any_look()
        a.cli(*a.pick(WRITERS).split())
        a.cli("archives", "verify", "--repair")
        a.compact()
        foreign = os.path.join(a.foreign, "etc")
        os.mkdir(foreign)
        os.chmod(foreign, 0o755)
        command = a.pick("list|show {sid}|verify|search x|lost {sid}|cat {sid}|catch-up").format(sid=a.sid)
        a.look(["archives", *command.split(), "--dir", foreign])


PROCESS = """
import os, sys
from mala_context import ArchiveError, TranscriptArchive
repo, path, sid = sys.argv[1:]
archive = TranscriptArchive(repo_path=repo)
archive.archive(path, sid)
child = os.fork()
for n in range(3):
    with open(path, "ab") as file:
        file.write(b'{"type":"user","message":{"content":"row %d of %d"}}\\n' % (n, bool(child)))
    try:
        archive.archive(path, sid)
    except ArchiveError as error:
        print(error, file=sys.stderr)
if not child:
    os._exit(0)
os.waitpid(child, 0)
archive.archive(path, sid)
"""


def start(a: Machine, event, **fields):
    """A hook that runs beside us."""
    process = subprocess.Popen(HOOK, env=a.env, cwd=a.repo, **PIPES)
    process.stdin.write(json.dumps(a.given(event, **fields)).encode())
    if a.rng.random() < 0.5:
        process.stdin.close()
    return process


def processes(a: Machine):
    """Many at once, forks, kills, too few descriptors, threads, bytes; ends of pipes that are closed."""
    rng = a.rng
    a.grow(rng.choice([3, 30, 300]))
    if rng.random() < 0.2:
        a.run([sys.executable, "-c", PROCESS, a.repo, a.path, a.sid], statuses={0})
        a.whole()
        return
    running = [start(a, rng.choice(EVENTS)) for _ in range(rng.randrange(4))]
    for each in running:
        if rng.random() < 0.4:
            time.sleep(rng.random() * 0.3)
            each.kill()
    name, most = rng.choice(
        [("NPROC", 1), ("NOFILE", rng.randrange(6, 16)), ("FSIZE", rng.randrange(5000)), ("AS", 10**8)]
    )
    with limits(**{name: most}) as prepare, open("/dev/full", "wb") as full:
        a.grow()
        a.hook(rng.choice(EVENTS), preexec_fn=prepare, stdout=rng.choice([subprocess.PIPE, full]))
        if name in {"NPROC", "FSIZE"}:  # without the others the installed program does not start
            a.cli("archives", "list", preexec_fn=prepare)
    for each in running:
        with each:
            with contextlib.suppress(BrokenPipeError):
                each.stdin.close()
            each.wait(timeout=60)
    said = a.hook("SessionEnd").stderr
    a.private()
    a.whole(said=said)
    if done := a.cli("archives", "verify").returncode:
        raise Fault(f"verify: {done}")


def clocks(a: Machine):
    """Clocks that are wrong or jump, times of files and rows from any year."""
    rng = a.rng
    said = b""
    for _ in range(3):
        a.grow(6)
        if rng.random() < 0.5:
            os.utime(a.path, (when := rng.choice([0, 1, 2**31, 2**32, 253402300800, 10**11, -(10**9)]), when))
        env = {"TZ": a.pick("UTC|Asia/Kathmandu|:/etc/passwd|XXX-99|"), "DONT_FAKE_MONOTONIC": "1"}
        for library in pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1"):
            env |= {"LD_PRELOAD": str(library), "FAKETIME": a.pick("-40y|-1d|-3600s|-300s|+1d|+70y|+0")}
        said += a.compact(env=env)
        a.any_look(env=env)
    a.whole(said=said)
    with open(a.path, "ab") as file:
        times = (
            "9999-12-31T23:59:60Z",
            "-1",
            "0000-00-00",
            "2026-11-01T12:00:00+99:99",
            *rng.sample(inputs.NUMBERS, 9),
        )
        file.write(inputs.dump({"type": "user", "timestamp": each, "message": {"content": "x"}} for each in times))
    said += a.compact()
    for _ in range(3):
        a.any_look()
    a.cli("archives", "show", a.sid, "--before", rng.choice(inputs.NUMBERS))
    a.cli("archives", "restore", a.sid, "--before", rng.choice(inputs.NUMBERS))
    a.whole(said=said)


def signals(a: Machine):
    """Signals at any moment, readers that go away."""
    rng = a.rng
    archived(a)
    a.grow(rng.choice([5, 500]))
    sent = signal.Signals[a.pick("SIGINT|SIGTERM|SIGHUP|SIGKILL|SIGPIPE|SIGUSR1|SIGALRM")]
    words = a.pick(
        "replay|report -o out.html|archives show|archives verify --repair|archives catch-up|hook|watch"
    ).split()
    if words == ["watch"]:  # goes on until it is told to end
        sent = signal.Signals[a.pick("SIGTERM|SIGHUP|SIGKILL")]

    def in_background():  # as a shell without job control starts it
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    options = {"preexec_fn": in_background} if sent != signal.SIGINT and rng.random() < 0.5 else {}
    with subprocess.Popen([inputs.MALA, *words], env=a.env, cwd=a.repo, **options, **PIPES) as process:
        a.log.append(f"{words} and {sent.name}")
        if words == ["hook"]:
            process.stdin.write(json.dumps(a.given("PreCompact")).encode())
        if rng.random() < 0.3:
            process.stdout.close()
            process.stdout = None
        time.sleep(rng.random() * 0.8)
        process.send_signal(sent)
        try:
            _, said = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Fault(f"{words} goes on after {sent.name}") from None
        if b"Traceback" in said and b"import" not in said:  # before our first line runs Python speaks for itself
            raise Fault(f"{words} after {sent.name}: {said[-800:]!r}")
        if process.returncode not in {0, 1, 2, 3, 130, -sent}:
            raise Fault(f"{words} after {sent.name}: status {process.returncode}")
    said = a.hook("SessionEnd").stderr
    a.private()
    a.whole(said=said)
    if done := a.cli("archives", "verify").returncode:
        raise Fault(f"verify: {done}")


def public(a: Machine, made):
    """The public API on rows of any kind: readers and the tracker raise nothing, what they say is JSON."""
    rng = a.rng
    tracker = m.ContextTracker(estimator=rng.choice(["occupancy", "cumulative", "max_cache_read", "total_tokens"]))
    for row in made:
        for reader in (m.read_row, m.read_stream_json, m.read_openai, m.read_message):
            for event in reader(row):
                tracker.apply(event)
    processor = m.MessageStreamProcessor()
    with contextlib.redirect_stderr(io.StringIO()):
        for _ in range(20):
            for message in inputs.messages(rng):
                processor.process(message)
                json.dumps(processor.tracker.snapshot().as_dict(), allow_nan=False)
    inputs_of = json.dumps(tracker.snapshot().as_dict(), allow_nan=False)
    usage = m.ContextUsage()
    with contextlib.suppress(TypeError, ValueError):
        usage.add_turn(input_tokens=rng.choice(inputs.VALUES), output_tokens=rng.choice(inputs.VALUES))
    ratio = usage.pressure_ratio(rng.choice([0, 1, -1, 2**64, 200_000]))
    if not isinstance(ratio, float) or ratio < 0 or ratio != ratio:
        raise Fault(f"pressure_ratio: {ratio!r} after {inputs_of[:80]}")
    with contextlib.suppress(TypeError, ValueError, m.ConfigError):
        window, output = rng.choice(inputs.VALUES), rng.choice([0, 5, -1, 2**70])
        target = m.TargetContextConfig(provider="p", model="m", window=window, max_output_tokens=output)
        limit = m.ContextGuard([target]).limit(target)
        if limit <= 0:
            raise Fault(f"a guard whose limit is {limit}: {target}")
    hook = m.make_precompact_hook(a.repo)
    given = a.given(
        "PreCompact", **{a.pick("session_id|transcript_path|trigger|agent_id|cwd"): rng.choice(inputs.VALUES)}
    )
    os.environ["MALA_RUNS_DIR"] = a.runs
    with contextlib.redirect_stderr(io.StringIO()):
        answer = asyncio.run(hook(given, None, {}))
    if answer != {}:
        raise Fault(f"precompact hook: {answer!r} for {given!r}")


def numbers(a: Machine):
    """Numbers of any size and spelling, in rows, options, variables and configurations."""
    rng = a.rng
    a.grow(40, odd=0.7)
    public(a, [json.loads(line) for line in a.transcript().split(b"\n") if line])
    a.hook()
    a.any_look()
    for _ in range(2):
        command = a.pick("replay|audit|report|watch --once|archives " + a.pick("prune|search|show|restore|export"))
        a.cli(*inputs.any_command(rng, command, [a.path, a.out], a.sid))
    gauge = {"session_id": a.sid, "transcript_path": a.path, "model": {"id": "claude-sonnet-4-5"}, "cost": {}}
    gauge["context_window"] = {"context_window_size": rng.choice(inputs.VALUES), "current_usage": inputs.usage(rng)}
    inputs.change(rng, gauge)
    a.cli("statusline", given=inputs.dump([gauge]), statuses={0})
    a.hook("UserPromptSubmit", env={"MALA_WARN_AT": rng.choice(inputs.NUMBERS).replace("\0", "")})
    key = a.pick("window|warn_at|compact_at|guard: {buffer_tokens|archive: {warn_bytes|guard: {max_output_tokens")
    number = rng.choice(inputs.NUMBERS)
    a.write("mala.yaml", f"context:\n  {key}: {number}{'}' if '{' in key else ''}\n".encode())
    checked = a.cli("config", "check").returncode
    shown = a.cli("config", "show", "--json").returncode
    if not checked and shown:
        raise Fault(f"config check is content with {key}: {number}, config show is not")
    a.hook()
    a.whole()


def names(a: Machine):
    """Names of sessions, folders, files and projects that nobody would choose."""
    rng = a.rng
    name = rng.choice(inputs.NAMES)
    plain = name.replace("/", "-").encode("utf-8", "surrogateescape").replace(b"\0", b"")[:200]
    a.repo = os.fsdecode(os.path.join(os.fsencode(a.top), b"repo-" + plain))
    os.makedirs(a.repo, exist_ok=True)
    a.folder = os.fsdecode(os.path.join(os.fsencode(a.claude), b"projects", b"-p-" + plain))
    os.makedirs(a.folder, exist_ok=True)
    a.path = os.path.join(a.folder, f"{a.sid}.jsonl")
    a.grow()
    a.compact()
    given = {**a.given("PreCompact"), "session_id": name}
    said = a.hook(given=inputs.dump([given])).stderr
    for _ in range(2):  # a start writes the path down, and others read it later
        odd = {"transcript_path": rng.choice([*inputs.NAMES, *inputs.VALUES]), "session_id": rng.choice([a.sid, name])}
        event = rng.choice(EVENTS)
        a.hook(event, inputs.dump([a.given(event, **odd)]))
    for where in (a.pieces() or [a.path])[0], a.path:
        beside = os.path.dirname(where)
        for _ in range(2):
            other = rng.choice(inputs.NAMES).replace("/", "-") + a.pick("|.jsonl|.manifest.jsonl")
            chain = a.pick("|.999999|.2|.0|.-1|.1000000|.99999999999999999999999")
            stamp = a.pick(
                "20260101T000000.000000Z|99999999T999999.999999Z|0|20261399T250000.000000Z|99991231T235959.999999Z"
            )
            for planted in (other, f"{a.sid}{chain}_{stamp}_transcript.jsonl"):
                with contextlib.suppress(OSError):
                    os.close(os.open(os.path.join(beside, planted), os.O_CREAT | os.O_EXCL, 0o600))
    for _ in range(2):
        a.any_look()
    command = "archives " + a.pick("show|cat|lost|restore|export|search|verify|list|prune")
    a.cli(*inputs.any_command(rng, command, [a.path, name], a.sid))
    a.grow()
    said += a.compact()
    a.whole(said=said, may_fail=True)
    if any(pathlib.Path(a.top).rglob("pwned")):
        raise Fault("a name ran as a command")


def texts(a: Machine):
    """Texts that forge lines, control terminals, break markup, or are no Unicode; words are found again."""
    rng = a.rng
    a.grow(30, odd=0.2)
    a.compact()
    word = f"needle{rng.randrange(10**6)}"
    before = rng.choice(inputs.TEXTS)
    words = {"role": "user", "content": f"{before} {word} {rng.choice(inputs.TEXTS)}"}
    row = {"type": "user", "uuid": inputs.uuid(10**6), "message": words}
    with open(a.path, "ab") as file:
        file.write(inputs.dump([row]))
    a.compact()
    a.whole()
    if word not in a.cli("archives", "search", word).stdout.decode():
        raise Fault(f"{word} is not found")
    for _ in range(3):
        a.any_look()
    copy = os.path.join(a.top, "copy.html")
    for words in (["report", a.path, "-o", a.out], ["archives", "export", a.sid, copy, "--html"]):
        if not a.cli(*words).returncode and "<img src=x" in pathlib.Path(words[3]).read_text(encoding="utf-8"):
            raise Fault(f"a text is markup: {words}")
    shown = a.cli("archives", "show", a.sid, "--full").stdout.decode()
    if any(line.startswith(("user: forged", "## user")) for line in shown.splitlines()):
        raise Fault("a text forges a turn in show")
    gauge = {
        "model": {"id": rng.choice(inputs.TEXTS), "display_name": rng.choice(inputs.TEXTS)},
        "transcript_path": a.path,
    }
    said = a.cli("statusline", given=inputs.dump([gauge]), statuses={0}).stdout.decode("utf-8", "replace")
    if any(not each.isprintable() for each in said.rstrip("\n")):
        raise Fault(f"statusline: {said!r}")
    public(a, [row])


def stores(a: Machine):
    """A folder as an object store: private, whole, refused where it is somebody else's or no folder."""
    rng = a.rng
    bucket = os.path.join(a.top, "bucket")
    a.write("mala.yaml", f"context:\n  archive:\n    directory: file://{bucket}\n".encode())
    a.grow(30)
    trap = a.pick("none|none|none|file|link|777|500")
    if trap == "file":
        pathlib.Path(bucket).write_text("x")
    elif trap == "link":
        os.symlink(a.foreign, bucket)
    elif trap != "none":
        os.mkdir(bucket)
        os.chmod(bucket, int(trap, 8))
        os.chown(bucket, rng.choice([os.getuid(), 65534]) if os.geteuid() == 0 else -1, -1)
    a.hook()
    a.cli("archives", "push")
    a.grow()
    a.hook("SessionEnd")
    pushed = a.cli("archives", "push").returncode
    a.whole()
    if trap == "file" and not pushed:
        raise Fault(f"a store is used that is {trap}")
    if pushed:
        return
    sent = [each for each in pathlib.Path(bucket).resolve().rglob("*") if each.is_file()]
    if wide := [each for each in sent if each.stat().st_mode & 0o077]:
        raise Fault(f"in the store everybody reads {wide}")
    os.rename(a.path, a.path + ".kept")
    a.cli("archives", "prune", a.sid, "--yes")
    if rng.random() < 0.5:
        target = rng.choice(sent)
        target.write_bytes(inputs.damage(rng, target.read_bytes()))
    os.rename(a.path + ".kept", a.path)
    a.whole(may_fail=True)
    for _ in range(2):
        a.any_look()


def say(a: Machine, **row):
    """Write one row of the session."""
    row = {"type": "user", "uuid": inputs.uuid(10**6 + a.rng.randrange(10**6)), **row}
    with open(a.path, "ab") as file:
        file.write(inputs.dump([row]))


def ask(a: Machine, event, **fields):
    """Call a hook, once or twice at the same time; another session may begin after it."""
    if a.rng.random() < 0.3:
        for each in [start(a, event, **fields) for _ in range(2)]:
            with each:
                pass
    else:
        a.hook(event, json.dumps(a.given(event, **fields)).encode())
    if a.rng.random() < 0.2:
        sid = inputs.uuid(7)
        other = pathlib.Path(a.folder, f"{sid}.jsonl")
        other.write_bytes(OTHER)
        a.hook("SessionStart", json.dumps(a.given("SessionStart", session_id=sid, transcript_path=str(other))).encode())


def compactions(a: Machine):
    """Hooks of compactions in any order, twice, beside starts of other sessions: each counts once, with its sizes."""
    rng, truth, after = a.rng, [], True
    for number in range(1, rng.randrange(2, 5)):
        say(a, message={"role": "user", "content": f"go on with {number}"})
        truth.append((1000 * number, 10 * number))
        if not after or rng.random() < 0.8:  # seconds after one that no PostCompact told it would be taken for it
            ask(a, "PreCompact")
            after = rng.random() < 0.8
        meta = {"trigger": "auto", "preTokens": 1000 * number, "postTokens": 10 * number}
        steps = [lambda meta=meta: say(a, type="system", subtype="compact_boundary", compactMetadata=meta)]
        if after:
            steps.insert(rng.randrange(2), lambda number=number: ask(a, "PostCompact", compact_summary=f"Did {number}"))
        for step in steps:
            step()
        if not after or rng.random() < 0.3:
            say(a, message={"role": "user", "content": "last words"})
            a.hook("SessionEnd")
        if rng.random() < 0.2:
            pathlib.Path(a.path).write_bytes(OTHER + a.transcript())
    a.hook("SessionEnd")
    a.whole()
    found = json.loads(a.cli("archives", "lost", a.sid, "--json").stdout)["compactions"]
    if (told := [(each["tokens_before"], each["tokens_after"]) for each in found]) != truth:
        raise Fault(f"compactions are {told}, not {truth}")
    if a.cli("archives", "verify").returncode:
        raise Fault("verify finds something")


KINDS = {
    each.__name__: each
    for each in (files, modes, processes, clocks, signals, numbers, names, texts, stores, compactions)
}
