"""Looking at the machine: each module gathers one kind of facts and reads only.

Two things are not left quite alone. Opening an archive's directory sets its mode to 0700, as every reader of an archive
does; so permissions are looked at first. And whether an object store takes anything only writing to it tells.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from mala_context.analysis.doctor.checks.settings import LOOKED_AT
from mala_context.analysis.doctor.facts import Facts, HookProof
from mala_context.analysis.doctor.gather import archives, models, object_store, places, programs, settings, transcripts
from mala_context.config import ContextConfig, load_config
from mala_context.errors import ConfigError

Progress = Callable[[int], object]
"""Told the bytes that were read since it was told last."""
MOST_BYTES = 1 << 30
"""Bytes of transcripts that are searched, and of archives that are verified; the newest first."""


def gather(
    repo: str,
    *,
    env: Mapping[str, str] | None = None,
    prove_hooks: Callable[[], HookProof] | None = None,
    progress: Progress | None = None,
    most_bytes: int = MOST_BYTES,
) -> Facts:
    """Gather all facts; give them to `checks.examine` next.

    Args:
        repo: the repository whose `mala.yaml` and project settings count.
        env: the environment; `None` for this process's own.
        prove_hooks: plays a session and says whether hooks fire; without it nobody looked.
        progress: told the bytes of what is read; one that has `expect` is told first how many there will be, about,
            and one that has `passed` the files that are looked at before, by number.
        most_bytes: how much of transcripts and of archives is read at most, each.

    Of very many sessions and files some are looked at, the newest where that can be told; the facts say how many.

    Never raises for what is wrong on the machine: that is what it is for.
    """
    values = os.environ if env is None else env
    tell = progress or (lambda _: None)
    passed = getattr(progress, "passed", lambda _: None)
    config = _config(repo)
    runs = places.runs(values)
    directories = places.archive_directories(repo, config, values)
    readable = places.readable(values, passed)
    claude = places.claude(values)
    files = settings.files(repo, values)
    found = transcripts.candidates(values, passed)
    kept = archives.look(directories, passed)
    expect = getattr(progress, "expect", None)
    if expect is not None:
        sizes = (
            sum(found.newest[each].st_size for each in transcripts.within(found, most_bytes)),
            sum(session.stored for each in kept for session in each.newest),
        )
        expect(sum(min(size, most_bytes) for size in sizes))
    return Facts(
        repo=repo,
        config=config,
        sdk=programs.sdk_version(),
        programs=programs.programs(values),
        hooks=None if prove_hooks is None else prove_hooks(),
        claude=claude,
        stores=object_store.stores(repo, config, values),
        runs=runs,
        space=places.space(values, kept),
        settings=files,
        environment={name: values[name] for name in LOOKED_AT if values.get(name)},
        configs=settings.configs([repo, *(name for name, _ in places.known(values))]),
        transcripts=transcripts.transcripts(found, directories, tell, most_bytes),
        verified=archives.verified(kept, tell, most_bytes),
        readable=readable,
        models=models.models(found.newest, files, values),
    )


def _config(repo: str) -> ContextConfig:
    try:
        return load_config(repo)
    except ConfigError:
        return ContextConfig()
