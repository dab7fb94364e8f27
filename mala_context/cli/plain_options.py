"""Options without click, which takes 20 ms to load: for commands that other programs run and wait for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def parsed(
    arguments: Sequence[str], *, flags: Collection[str], values: Collection[str]
) -> tuple[dict[str, str], list[str]] | None:
    """Return options by their names, and the other arguments; a flag's value is empty.

    Return `None` if click must answer: help, an option that is unknown, lacks its value or has one too many.
    """
    options: dict[str, str] = {}
    others = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if not argument.startswith("-") or argument == "-":
            others.append(argument)
        elif name in flags and not equals:
            options[name] = ""
        else:
            given = value if equals else next(rest, None)
            if name not in values or given is None:
                return None
            options[name] = given
    return options, others
