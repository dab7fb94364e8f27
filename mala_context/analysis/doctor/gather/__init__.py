"""Looking at the machine: each module gathers one kind of facts and reads only.

There is one exception: only a test write tells whether an object store can be written to.

Of very many files only the newest are looked at, so that the doctor answers in seconds; the facts say how many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from mala_context.analysis.doctor.checks.settings import VARIABLES
from mala_context.analysis.doctor.facts import Facts, HookProof
from mala_context.analysis.doctor.gather import archives, places, programs, settings, transcripts
from mala_context.config import ContextConfig, load_config
from mala_context.errors import ConfigError

MOST_BYTES = 1 << 30
"""Bytes of transcripts that are searched, and of archives that are verified; the newest first."""


def gather(
    repo: str,
    *,
    env: Mapping[str, str] | None = None,
    prove_hooks: Callable[[], HookProof] | None = None,
    progress: Callable[[int], object] | None = None,
    most_bytes: int = MOST_BYTES,
) -> Facts:
    """Gather all facts; give them to `checks.examine` next.

    Args:
        repo: the repository whose `mala.yaml` and project settings count.
        env: the environment; `None` for this process's own.
        prove_hooks: plays a session and returns whether hooks fired; without it that is not looked at.
        progress: called with the number of bytes that were read since its last call.
        most_bytes: how much of transcripts and of archives is read at most, each.

    Never raises for a fault of the machine: finding it is the purpose.
    """
    values = os.environ if env is None else env
    tell = progress or (lambda _: None)
    config = _config(repo)
    runs = places.runs(values)
    readable = places.readable(values)
    directories = archives.directories(repo, config, values)
    files = settings.files(repo, values)
    found = transcripts.newest(values)
    opened = [archives.look(each) for each in directories]
    return Facts(
        repo=repo,
        config=config,
        sdk=programs.sdk_version(),
        programs=programs.programs(values),
        hooks=None if prove_hooks is None else prove_hooks(),
        claude=places.claude(values),
        stores=archives.stores(repo, config, values),
        runs=runs,
        space=archives.space(values, opened),
        settings=files,
        environment={name: values[name] for name in VARIABLES if values.get(name)},
        configs=settings.configs([repo, *(name for name, _ in places.known(values))]),
        maps=transcripts.maps(found),
        transcripts=transcripts.transcripts(found, directories, tell, most_bytes),
        verified=archives.verified(opened, tell, most_bytes),
        readable=readable,
        models=transcripts.models(found.paths, files, values),
    )


def _config(repo: str) -> ContextConfig:
    try:
        return load_config(repo)
    except ConfigError:
        return ContextConfig()
