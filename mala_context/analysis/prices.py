"""Estimate the cost of tokens in US dollars, at the list prices of genai-prices (the extra `prices`)."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from mala_context.errors import MalaContextError

_SAMPLE = 1_000
"""Tokens of the request that is priced: below the size from which some models cost more."""


def dollars(model: str | None, units: float) -> float | None:
    """Return the list price in US dollars of `units` uncached input tokens of a model, which may differ from a bill.

    `None` for a model that is not on the list. Raises `MalaContextError` without the extra.
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
