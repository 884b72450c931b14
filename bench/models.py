"""How right and how fast the embedded models are, on labelled tickets: `python bench/models.py`.

The tickets were written before anything was measured, but the way label vectors are made was chosen on them and on
those of the example, so take the numbers for the best case. The small text model is asked under the same schema as any
provider would be, to show what its judgement is worth.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from stepwell.adapters.models.embedded_text import EmbeddedText
from stepwell.adapters.models.embeddings import LocalEmbedder
from stepwell.adapters.models.labels import TEMPERATURE, LabelVectors, label_meanings, softmax
from stepwell.engine.model_performer import ModelPerformer
from stepwell.engine.performer import CallContext
from stepwell.errors import StepFailed
from stepwell.interpreter.effect import ModelCall
from stepwell.library.recipes import FileRecipes
from stepwell.ports import ModelRequest

LABELS = {
    "refund": (
        "The customer wants money back for an order.",
        [
            "The mug arrived broken, please give me my money back.",
            "I returned the jacket two weeks ago and have not been refunded.",
        ],
    ),
    "delivery": (
        "The parcel is late, lost or went to the wrong place.",
        ["Where is my package? Tracking has not moved since Monday.", "The courier left my parcel at the wrong house."],
    ),
    "billing": (
        "A question about an invoice, a charge or a payment method.",
        ["I was charged twice this month.", "Please send me an invoice with our VAT number."],
    ),
    "technical": (
        "Something in the app or website does not work.",
        ["The app crashes when I open settings.", "I get error 500 at checkout."],
    ),
    "account": (
        "Login, password, profile data or closing the account.",
        ["I forgot my password and the reset mail never comes.", "Please change the e-mail address of my profile."],
    ),
}
TICKETS = [
    ("I'd like to send these shoes back and get reimbursed, they don't fit.", "refund"),
    ("Blender stopped after two uses. I don't want a replacement, I want the 80 euros returned.", "refund"),
    ("You cancelled my order but the money never came back to my card.", "refund"),
    ("The colour is nothing like the photo. Can I return it for a full reimbursement?", "refund"),
    ("It's been ten days and the courier still says 'in transit'.", "delivery"),
    ("My neighbour got my box again. Can the driver read house numbers?", "delivery"),
    ("Order 5531 was supposed to be here on Friday for a birthday. Nothing yet.", "delivery"),
    ("Tracking says delivered, but there is nothing at my door.", "delivery"),
    ("Why does my statement show two payments of 29.90?", "billing"),
    ("Our accounting needs the receipt for March made out to the company.", "billing"),
    ("Can I pay by bank transfer instead of credit card?", "billing"),
    ("The price on the bill is higher than what the shop showed.", "billing"),
    ("The page stays white after I press 'Buy'.", "technical"),
    ("Since the update the search returns nothing at all on Android.", "technical"),
    ("Photos won't upload, the progress bar hangs at 99 percent.", "technical"),
    ("Push notifications arrive hours late since version 4.2.", "technical"),
    ("I can't sign in any more, it says my credentials are unknown.", "account"),
    ("Please delete my profile and all data you hold about me.", "account"),
    ("How do I turn on two-factor authentication?", "account"),
    ("I married and need my last name changed in your system.", "account"),
    ("我要退货，把钱退给我。", "refund"),
    ("快递三天没有更新了，我的包裹在哪里？", "delivery"),
    ("忘记密码了，收不到重置邮件。", "account"),
    ("J'ai été débité deux fois pour la même commande.", "billing"),
    ("L'application plante dès que j'ouvre le panier.", "technical"),
    ("Le colis n'est jamais arrivé.", "delivery"),
    ("Je veux être remboursé, le vase est cassé.", "refund"),
    ("应用一打开就闪退。", "technical"),
    ("发票上的公司名称写错了。", "billing"),
    ("Comment supprimer mon compte ?", "account"),
]

CALL = CallContext("local", "bench", "/x", 1, "bench/x", 120)
ENGLISH = 20


class Judging(EmbeddedText):
    """The small model, asked to classify all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.judges = True


def labels():
    return {name: {"description": text, "examples": examples} for name, (text, examples) in LABELS.items()}


async def classified(performer: ModelPerformer, tickets) -> list[dict]:
    found = []
    for text, _ in tickets:
        try:
            found.append((await performer(ModelCall(prompt=text, task="classify", labels=labels()), CALL)).value)
        except StepFailed as failure:
            found.append({"label": failure.kind, "confidence": 0.0})
    return found


def told(name: str, tickets, found: list[dict], seconds: float, *, english: int = ENGLISH) -> None:
    right = [answer["label"] == label for answer, (_, label) in zip(found, tickets, strict=True)]
    first, other = right[:english], right[english:]
    sure = sum(answer["confidence"] for answer in found) / len(found)
    print(f"{name:<28} {sum(first)}/{len(first)}", end="")
    print(f", Chinese and French {sum(other)}/{len(other)}" if other else "", end="")
    print(f", mean confidence {sure:.2f}, {seconds / len(tickets):.3f} s a ticket")
    for good, answer, (text, label) in zip(right, found, tickets, strict=True):
        if not good and len(right) - sum(right) <= 4:
            print(f"    {label} taken for {answer['label']} ({answer['confidence']:.2f}): {text}")


async def vectors() -> None:
    embedder = LocalEmbedder()
    performer = ModelPerformer({"embedded": EmbeddedText()}, "embedded", embedder)
    begun = time.perf_counter()
    await embedder.queries(["warm"])
    print(f"embeddings: loaded and first text in {time.perf_counter() - begun:.2f} s")
    begun = time.perf_counter()
    found = await classified(performer, TICKETS)
    told("vectors, 2 examples a label", TICKETS, found, time.perf_counter() - begun)
    bare = LabelVectors(embedder)
    meanings = label_meanings({name: text for name, (text, _) in LABELS.items()})
    begun = time.perf_counter()
    found = [await bare.classify(text, meanings) for text, _ in TICKETS]
    told("vectors, descriptions only", TICKETS, found, time.perf_counter() - begun)
    await embedder.aclose()


def example_tickets():
    """The example's own labels and tickets, in English, Chinese and French: (text, label) each."""
    folder = Path(__file__).resolve().parent.parent / "examples" / "support-triage"
    wanted = json.loads((folder / "tickets" / "labels.json").read_text("utf-8"))
    recipe = FileRecipes(None, [folder / "recipes"]).find("triage-classify").definition
    meanings = label_meanings({name: label.model_dump() for name, label in (recipe.labels or {}).items()})
    texts = {name: json.loads((folder / "tickets" / name).read_text("utf-8"))["ticket"] for name in wanted}
    return meanings, [(texts[name], label) for name, label in wanted.items()]


async def example() -> None:
    meanings, tickets = example_tickets()
    embedder = LocalEmbedder()
    vectors = LabelVectors(embedder)
    begun = time.perf_counter()
    found = [await vectors.classify(text, meanings) for text, _ in tickets]
    told("vectors, the example", tickets, found, time.perf_counter() - begun, english=len(tickets))
    await embedder.aclose()


async def small_model() -> None:
    model = Judging()
    begun = time.perf_counter()
    await model.complete(ModelRequest("", "hi", max_tokens=1, timeout=120))
    print(f"text model: library, process and first token in {time.perf_counter() - begun:.2f} s")
    begun = time.perf_counter()
    reply = await model.complete(ModelRequest("", "Tell a story about a mill.", max_tokens=200, timeout=120))
    print(f"text model: {reply.output_tokens / (time.perf_counter() - begun):.0f} tokens/s, one request")
    performer = ModelPerformer({"embedded": model}, "embedded")
    begun = time.perf_counter()
    found = await classified(performer, TICKETS[:ENGLISH])
    told("SmolLM2-135M under a schema", TICKETS[:ENGLISH], found, time.perf_counter() - begun)
    await model.aclose()


async def main() -> None:
    print(
        json.dumps({"cores": os.cpu_count(), "load": os.getloadavg(), "tickets": len(TICKETS), "labels": len(LABELS)})
    )
    gap = softmax([0.9, 0.87], TEMPERATURE)[0]
    print(f"scores: softmax of cosines at temperature {TEMPERATURE}; a gap of 0.03 between two labels gives {gap:.2f}")
    await vectors()
    await example()
    await small_model()


if __name__ == "__main__":
    asyncio.run(main())
