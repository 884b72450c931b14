"""The model performer: which way a call takes, what comes out, and what it says about it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.adapters.models.embedded_text import EmbeddedText
from stepwell.adapters.models.embeddings import LocalEmbedder
from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.adapters.models.summary import extract_summary, sentences
from stepwell.engine.model_performer import ModelPerformer
from stepwell.engine.performer import CallContext
from stepwell.errors import StepFailed
from stepwell.extras import installing
from stepwell.interpreter.effect import ModelCall, ToolCall
from stepwell.ports import ToolRequest
from stepwell.testing.provider_server import ProviderServer, Reply

CALL = CallContext(account="local", run_id="r1", path="/l", attempt=1, key="r1/l", timeout=20)
LABELS = {
    "refund": {
        "description": "The customer wants money back for an order.",
        "examples": ["The mug arrived broken, please give me my money back.", "I have not been refunded yet."],
    },
    "delivery": {
        "description": "The parcel is late, lost or went to the wrong place.",
        "examples": ["Where is my package?", "The courier left my parcel at the wrong house."],
    },
    "technical": {
        "description": "Something in the app or on the website does not work.",
        "examples": ["The app crashes when I open settings.", "I get error 500 at checkout."],
    },
}


class Provider:
    """A scripted provider with a performer in front of it."""

    def __init__(self, *replies: Reply, embedder=None, **models) -> None:
        self.server = ProviderServer(list(replies))
        self.embedder = embedder
        self.models = models

    async def __aenter__(self):
        await self.server.__aenter__()
        self.model = OpenAICompatible("care", self.server.base_url, "care-model", api_key=self.server.key)
        self.performer = ModelPerformer({"care": self.model, **self.models}, "care", self.embedder)
        return self

    async def __aexit__(self, *error):
        await self.model.aclose()
        await self.server.__aexit__(*error)

    async def __call__(self, **call):
        return await self.performer(ModelCall(**call), CALL)

    @property
    def asked(self):
        return [request.json for request in self.server.requests]


async def test_without_a_schema_the_output_is_text():
    async with Provider(Reply("Dear Ana")) as care:
        done = await care(prompt="write", system="be kind", temperature=0.2, max_tokens=50)
        assert done.value == {"text": "Dear Ana"}
        assert done.meta == {
            "model": "care-model",
            "way": "model",
            "input_tokens": 10,
            "output_tokens": 5,
            "repairs": 0,
        }
        assert (care.asked[0]["temperature"], care.asked[0]["max_tokens"]) == (0.2, 50)


async def test_an_empty_text_is_an_answer_and_a_cut_text_says_so():
    async with Provider(Reply(""), Reply("once upon", finish_reason="length")) as care:
        assert (await care(prompt="x")).value == {"text": ""}
        cut = await care(prompt="x")
        assert (cut.value, cut.meta["finish_reason"]) == ({"text": "once upon"}, "length")


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply("", finish_reason="length"), "truncated_output"),
        (Reply(None, calls=[ToolRequest("1", "x", {})]), "output_invalid"),
    ],
)
async def test_no_text_at_all_is_a_failure_with_its_tokens(reply, kind):
    async with Provider(reply) as care:
        with pytest.raises(StepFailed) as caught:
            await care(prompt="x")
        assert caught.value.kind == kind
        assert caught.value.detail["usage"]["input_tokens"] == 10


async def test_a_failure_of_the_repair_keeps_the_tokens_of_the_answer():
    async with Provider(Reply("no JSON"), Reply("slow down", 429, {"Retry-After": "5"})) as care:
        with pytest.raises(StepFailed) as caught:
            await care(prompt="x", schema={"type": "object"})
        assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 5.0)
        assert caught.value.detail["status"] == 429
        assert caught.value.detail["usage"]["output_tokens"] == 5


async def test_a_provider_classifies_under_a_schema_with_descriptions_and_examples():
    answer = {"label": "refund", "scores": {"refund": 60, "delivery": 20, "technical": 0}}
    async with Provider(Reply(json.dumps(answer))) as care:
        done = await care(prompt="My mug broke", task="classify", labels=LABELS)
        assert done.value == {
            "label": "refund",
            "confidence": 0.75,
            "scores": {"refund": 0.75, "delivery": 0.25, "technical": 0.0},
        }
        assert done.meta["way"] == "model"
        (asked,) = care.asked
        schema = asked["response_format"]["json_schema"]["schema"]
        assert schema["properties"]["label"]["enum"] == list(LABELS)
        prompt = asked["messages"][-1]["content"]
        assert "The parcel is late" in prompt
        assert "Where is my package?" in prompt
        assert prompt.endswith("My mug broke")


async def test_a_label_that_does_not_exist_is_repaired_once_and_then_refused():
    wrong = Reply(json.dumps({"label": "complaint", "scores": {"refund": 1, "delivery": 0, "technical": 0}}))
    async with Provider(wrong) as care:
        with pytest.raises(StepFailed) as caught:
            await care(prompt="x", task="classify", labels=LABELS)
        assert caught.value.kind == "output_invalid"
        assert len(care.asked) == 2
        assert "'complaint' is not one of" in care.asked[1]["messages"][-1]["content"]


async def test_a_model_is_chosen_by_name_by_provider_and_by_default():
    async with Provider(Reply("x")) as care:
        for choice in (None, {}, "care", {"provider": "care"}, {"name": "care"}, {"temperature": 0.1}):
            await care(prompt="x", model=choice)
        assert {asked["model"] for asked in care.asked} == {"care-model"}
        assert care.asked[-1]["temperature"] == 0.1
        await care(prompt="x", model={"provider": "care", "name": "bigger", "max_tokens": 7})
        assert (care.asked[-1]["model"], care.asked[-1]["max_tokens"]) == ("bigger", 7)
        await care(prompt="x", model="provider-own-name")
        assert care.asked[-1]["model"] == "provider-own-name"
        with pytest.raises(StepFailed, match="no model 'x'; configured: care"):
            await care(prompt="x", model={"provider": "nobody", "name": "x"})


async def test_a_name_that_only_the_embedded_default_could_answer_is_not_found():
    performer = ModelPerformer({"embedded": EmbeddedText()}, "embedded")
    assert [problem.code for problem in performer.problems_with("gpt-x")] == ["model_unknown"]
    with pytest.raises(StepFailed, match="no model 'gpt-x'; configured: embedded"):
        await performer(ModelCall(prompt="x", model="gpt-x"), CALL)


async def test_what_is_missing_is_told_before_a_run():
    performer = ModelPerformer({"embedded": EmbeddedText(gguf="/no/such/file.gguf")}, "care")
    assert [problem.code for problem in performer.available()] == ["model_missing", "model_unknown"]
    built_in = ModelPerformer({"embedded": EmbeddedText()}, "embedded")
    (problem,) = built_in.problems_with(None, "classify")
    assert problem.hint == f"install the extra: {installing('local')}"
    with pytest.raises(StepFailed, match="embedding model"):
        await built_in(ModelCall(prompt="x", task="extract_summary"), CALL)


async def test_what_is_no_model_call_is_a_mistake_of_the_program():
    with pytest.raises(TypeError):
        await ModelPerformer({}, "x")(ToolCall(tool="t"), CALL)
    with pytest.raises(StepFailed, match="no task 'sing'"):
        await ModelPerformer({}, "x")(ModelCall(prompt="x", task="sing"), CALL)


@pytest.mark.models
async def test_the_embedded_default_classifies_by_vectors_in_three_languages():
    embedder = LocalEmbedder()
    performer = ModelPerformer({"embedded": EmbeddedText()}, "embedded", embedder)
    assert performer.available() == []
    right = []
    for ticket, wanted in [
        ("Blender stopped after two uses, I want the 80 euros returned.", "refund"),
        ("Order 5531 was supposed to be here on Friday. Nothing yet.", "delivery"),
        ("The page stays white after I press 'Buy'.", "technical"),
        ("快递三天没有更新了，我的包裹在哪里？", "delivery"),
        ("Je veux être remboursé, le vase est cassé.", "refund"),
    ]:
        done = await performer(ModelCall(prompt=ticket, task="classify", labels=LABELS), CALL)
        label, confidence = done.value["label"], done.value["confidence"]
        right.append(label == wanted)
        assert label == wanted or confidence < 0.5, "it may err, but not with confidence"
        assert confidence == done.value["scores"][label] == max(done.value["scores"].values())
        assert sum(done.value["scores"].values()) == pytest.approx(1, abs=1e-3)
        assert done.meta["way"] == "embeddings"
    assert sum(right) >= 4
    with pytest.raises(StepFailed, match="no text to classify"):
        await performer(ModelCall(prompt="  ", task="classify", labels=LABELS), CALL)
    with pytest.raises(StepFailed) as caught:
        await performer(ModelCall(prompt="x", task="classify", labels=LABELS, schema={"required": ["why"]}), CALL)
    assert caught.value.kind == "output_invalid"
    await embedder.aclose()


@pytest.mark.models
@pytest.mark.parametrize(
    ("text", "first", "left_out"),
    [
        (
            "Dr. Smith ordered a lamp on 3.5. from Lyon. The lamp arrived broken. It rained. She wants her money back. We offered a voucher. She refused the voucher and asks for a refund of 89.90 EUR!",
            "Dr. Smith ordered a lamp on 3.5. from Lyon.",
            "It rained.",
        ),
        (
            "顾客上周五下单。包裹一直停在上海的仓库里。今天天气很好。快递公司确认包裹丢失！顾客要求全额退款。谢谢。",
            None,
            "谢谢。",
        ),
        ("Bonjour ! Mon colis n'est jamais arrivé. J'ai appelé M. Martin trois fois. Merci.", None, "Merci."),
    ],
)
async def test_a_summary_quotes_in_order_and_invents_nothing(text, first, left_out):
    embedder = LocalEmbedder()
    performer = ModelPerformer({}, "none", embedder)
    done = await performer(ModelCall(prompt=text, task="extract_summary"), CALL)
    quoted = done.value["sentences"]
    assert 2 <= len(quoted) <= 3
    places = [text.index(sentence) for sentence in quoted]
    assert places == sorted(places)
    assert left_out not in quoted
    assert first in {None, quoted[0]}
    assert done.value["text"] == ("".join(quoted) if "。" in text else " ".join(quoted))
    await embedder.aclose()


class Lengths:
    """An embedder for shapes: a text's vector depends on its length alone."""

    async def queries(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if len(text) % 2 else [0.0, 1.0] for text in texts]

    passages = queries


@given(st.text(alphabet="aB1 .!?。！\n»\"'", max_size=60))
async def test_every_sentence_of_a_summary_stands_in_the_text(text):
    found = sentences(text)
    position = 0
    for sentence in found:
        position = text.index(sentence, position) + len(sentence)
    summary = await extract_summary(text, Lengths())
    assert set(summary["sentences"]) <= set(found)
    assert bool(summary["sentences"]) == bool(found)


def test_abbreviations_initials_and_numbers_end_no_sentence():
    assert sentences("Mr. T. Holt paid 3.50 EUR, e.g. by card. He left.") == [
        "Mr. T. Holt paid 3.50 EUR, e.g. by card.",
        "He left.",
    ]
    assert sentences("- one\n- two\n\n***\n") == ["- one", "- two"]
