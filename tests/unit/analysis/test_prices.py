"""Estimates in money, by the price list of another package."""

import sys
import types

import pytest

from mala_context.analysis.prices import _price, dollars
from mala_context.errors import MalaContextError


def test_money_is_a_models_price_of_an_input_token(monkeypatch):
    prices = types.SimpleNamespace(Usage=dict, calc_price=lambda usage, **_: types.SimpleNamespace(input_price=0.003))
    monkeypatch.setitem(sys.modules, "genai_prices", prices)
    monkeypatch.setattr("mala_context.analysis.prices._price", _price.__wrapped__)
    assert dollars("claude-sonnet-4-5", 34_500) == pytest.approx(0.1035)


def test_money_of_an_unknown_model_is_none_and_without_the_package_an_error(monkeypatch):
    def unknown(usage, **about):
        raise LookupError(about["model_ref"])

    monkeypatch.setitem(sys.modules, "genai_prices", types.SimpleNamespace(Usage=dict, calc_price=unknown))
    assert _price.__wrapped__("another-model") is None
    assert dollars(None, 1.0) is None
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(MalaContextError, match=r"mala-context\[prices\]"):
        _price.__wrapped__("claude-sonnet-4-5")
