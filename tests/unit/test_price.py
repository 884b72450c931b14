"""A price that the settings say is that of the model that they name."""

from __future__ import annotations

from stepwell.adapters.models.bounds import nano_usd
from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.adapters.models.price import FREE, Price, price_for

MILLION = 1_000_000


def test_another_model_of_the_provider_has_not_the_price_of_the_named_one():
    price = Price(2.0, 8.0)
    assert price_for(price, "m", "") is price
    assert price_for(price, "m", "m") is price
    assert price_for(price, "m", "dear") is None
    assert price_for(None, "m", "") is None


def test_a_service_that_costs_nothing_costs_nothing_for_all_its_models():
    assert price_for(FREE, "m", "other") is FREE


def test_the_bound_of_another_model_is_that_of_the_list_or_unknown():
    model = OpenAICompatible("big", "https://models.example/v1", "m", price=Price(2.0, 8.0))
    assert nano_usd(model, "", MILLION, MILLION) == 10_000_000_000
    assert nano_usd(model, "nobody-knows-this", MILLION, MILLION) is None
    listed = nano_usd(model, "gpt-4o", MILLION, MILLION)
    assert listed is not None
    assert listed != 10_000_000_000
