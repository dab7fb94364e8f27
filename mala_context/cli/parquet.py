"""Rows as a Parquet file, for a notebook or a table of many runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from mala_context.cli.files import publish


def write(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Write rows of plain values; the file is there whole or not at all. Raises `ClickException` without pyarrow."""
    try:
        import pyarrow as pa  # type: ignore[import-not-found,unused-ignore]  # an extra that type checks do without
        from pyarrow import parquet  # type: ignore[import-not-found,unused-ignore]  # likewise
    except ImportError:
        raise click.ClickException("parquet needs a package: pip install 'mala-context[parquet]'.") from None
    with publish(path) as temporary:
        parquet.write_table(pa.Table.from_pylist(list(rows)), temporary)
