"""What tokens cost in money: an estimate at list prices by genai-prices, where the extra `prices` is installed."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from mala_context.errors import MalaContextError

_SAMPLE = 1_000
"""Tokens of the request that is priced: of a size that no model charges more for."""


def dollars(model: str | None, units: float) -> float | None:
    """Return what `units` uncached input tokens of a model cost in US dollars, by the list and not by any bill.

    `None` for a model that the list does not have. Raises `MalaContextError` without the extra.
    """
    price = None if model is None else _price(model)
    return None if price is None else units * price


@cache
def _price(model: str) -> float | None:
    try:
        genai_prices = import_module("genai_prices")
    except ImportError:
        raise MalaContextError("prices need a package: pip install 'mala-context[prices]'") from None
    try:
        found = genai_prices.calc_price(
            genai_prices.Usage(input_tokens=_SAMPLE), model_ref=model, provider_id="anthropic"
        )
    except LookupError:
        return None
    return float(found.input_price) / _SAMPLE
