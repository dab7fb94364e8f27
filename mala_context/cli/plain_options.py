"""Command lines without click, which takes 20 ms to load: for commands that are waited for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def taken_apart(
    arguments: Iterable[str], flags: Collection[str], valued: Collection[str]
) -> tuple[list[str], list[tuple[str, str]]] | None:
    """Return the words that are no options, and each option with its value (empty for a flag), both in order.

    `None` where it takes click: an option that is in neither collection, lacks its value, or has one too many.
    """
    words: list[str] = []
    options: list[tuple[str, str]] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if not name.startswith("-"):
            words.append(argument)
        elif name in flags and not equals:
            options.append((name, ""))
        elif name in valued:
            given = value if equals else next(rest, None)
            if given is None:
                return None
            options.append((name, given))
        else:
            return None
    return words, options
