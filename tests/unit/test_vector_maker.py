"""Making vectors in the background: what fails stops nobody, and nobody works for nothing."""

from __future__ import annotations

import asyncio

import pytest

from stepwell.errors import StepFailed
from stepwell.stores import vector_maker
from stepwell.stores.vector_maker import VectorMaker


class Passage:
    def __init__(self, text):
        self.text = text

    def told(self):
        return self.text


class Model:
    identity = "m"

    def __init__(self):
        self.broken = False
        self.poison = ""

    async def queries(self, texts):
        return await self.passages(texts)

    async def passages(self, texts):
        await asyncio.sleep(0)
        if self.broken or (self.poison and self.poison in texts):
            raise StepFailed("server_error", "the model is gone")
        return [[1.0] for _ in texts]


class Store:
    def __init__(self, *texts):
        self.model = Model()
        self.left = [Passage(text) for text in texts]
        self.looked = 0
        self.maker = VectorMaker(self.model, self.missing, self.keep, self.disown)

    async def missing(self):
        self.looked += 1
        await asyncio.sleep(0)
        return self.left[:4]

    async def keep(self, found):
        done = [passage for passage, _ in found]
        self.left = [passage for passage in self.left if passage not in done]

    async def disown(self):
        pass


@pytest.fixture
def patience(monkeypatch):
    monkeypatch.setattr(vector_maker, "_PATIENCE", 0.02)


async def test_a_query_that_fails_while_nothing_is_missing_leaves_no_work_behind(patience):
    store = Store()
    store.model.broken = True
    assert await store.maker.query("what?") is None
    await asyncio.sleep(0.2)
    assert store.looked < 20
    assert store.maker.problem() == "the model is gone"
    store.model.broken = False
    assert await store.maker.query("what?") == [1.0]
    assert store.maker.problem() == ""
    await store.maker.aclose()


async def test_what_another_process_has_made_meanwhile_ends_the_work(patience):
    store = Store("a", "b")
    store.model.broken = True
    store.maker.wake()
    await asyncio.sleep(0.05)
    store.left = []
    before = store.looked
    await asyncio.sleep(0.2)
    assert store.looked < before + 20
    await store.maker.aclose()
