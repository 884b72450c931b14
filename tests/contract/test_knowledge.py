"""What every knowledge store keeps to: the one in memory and the one on SQLite."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import random
import sqlite3
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.errors import NotFound, StepFailed, Unavailable
from stepwell.ports import DocumentWrite
from stepwell.stores.knowledge_memory import MemoryKnowledge
from stepwell.stores.knowledge_sqlite import SqliteKnowledge
from stepwell.stores.sqlite.database import Database

A = "acme"


class Meanings:
    """An embedder for shapes: a text means the topics whose words it holds, in whatever language."""

    TOPICS = (
        ("refund", "money back", "退款", "返金", "환불"),
        ("holiday", "leave", "休假", "休暇"),
        ("door", "key", "门"),
        ("ship", "parcel", "包裹"),
    )

    def __init__(self, identity="meanings", *, fails=0):
        self.identity = identity
        self.fails = fails
        self.embedded = Counter()

    async def queries(self, texts):
        return [self._vector(text) for text in texts]

    async def passages(self, texts):
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise StepFailed("server_error", "the embedding model stumbled")
        self.embedded.update(texts)
        return [self._vector(text) for text in texts]

    def _vector(self, text):
        found = [float(sum(word in text.lower() for word in words)) for words in self.TOPICS] + [0.1]
        length = math.sqrt(sum(number * number for number in found))
        return [number / length for number in found]


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryKnowledge(clock=lambda: 1_790_000_000.0)
        return
    database = Database.open(tmp_path / "k.db")
    yield SqliteKnowledge(database, clock=lambda: 1_790_000_000.0)
    await database.close()


@pytest.fixture(params=["memory", "sqlite"])
async def hybrid(request, tmp_path):
    """A store with an embedder, and the embedder."""
    embedder = Meanings()
    if request.param == "memory":
        store = MemoryKnowledge(embedder, clock=lambda: 0.0)
        yield store, embedder
        await store.aclose()
        return
    database = Database.open(tmp_path / "k.db")
    store = SqliteKnowledge(database, embedder, clock=lambda: 0.0)
    yield store, embedder
    await store.aclose()
    await database.close()


async def text_of(store, document, version=0):
    return (await store.document(A, document, version=version))["text"]


async def found(store, query, **rest):
    return [passage.document for passage in await store.search(A, query, **rest)]


async def test_an_empty_knowledge_base_finds_nothing(store):
    assert await store.search(A, "refund") == []
    assert await store.documents(A) == []
    with pytest.raises(NotFound):
        await store.document(A, "refunds")


async def test_each_write_is_one_version_that_stays_readable(store):
    first = await store.write(A, DocumentWrite("d", "one"))
    second = await store.write(A, DocumentWrite("d", "two"))
    third = await store.write(A, DocumentWrite("d", "new", mode="replace"))
    assert [(made.document, made.version, made.chunks) for made in (first, second, third)] == [
        ("d", 1, 1),
        ("d", 2, 1),
        ("d", 3, 1),
    ]
    assert [await text_of(store, "d", version) for version in (1, 2, 3, 0)] == ["one", "one\n\ntwo", "new", "new"]
    for version in (4, -1):
        with pytest.raises(NotFound):
            await store.document(A, "d", version=version)


async def test_upsert_replaces_its_section_where_it_stands_or_adds_it(store):
    for section, content in [("a", "first a"), ("b", "first b"), ("a", "second a")]:
        await store.write(A, DocumentWrite("d", content, mode="upsert", section=section))
    await store.write(A, DocumentWrite("d", "tail"))
    assert await text_of(store, "d") == "second a\n\nfirst b\n\ntail"
    assert await text_of(store, "d", 2) == "first a\n\nfirst b"
    assert [passage.text for passage in await store.search(A, "first")] == ["first b"]


async def test_what_was_replaced_is_found_no_more(store):
    await store.write(A, DocumentWrite("d", "old words about refunds"))
    await store.write(A, DocumentWrite("d", "fresh words", mode="replace"))
    assert await found(store, "refunds") == []
    assert await found(store, "words") == ["d"]
    assert (await store.search(A, "words"))[0].version == 2


async def test_a_repeated_idempotency_key_gives_the_same_version(store):
    write = DocumentWrite("d", "note", idempotency_key="run/step")
    made = await store.write(A, write)
    await store.write(A, DocumentWrite("d", "other"))
    assert await store.write(A, write) == made
    assert await text_of(store, "d") == "note\n\nother"
    other = await store.write("globex", write)
    assert other.version == 1


async def test_the_idempotency_key_holds_while_many_write_at_once(store):
    write = DocumentWrite("d", "note", idempotency_key="k")
    made = await asyncio.gather(*[store.write(A, write) for _ in range(50)])
    assert {one.version for one in made} == {1}
    assert await text_of(store, "d") == "note"


async def test_writers_at_the_same_time_lose_nothing(store):
    made = await asyncio.gather(*[store.write(A, DocumentWrite("d", f"note {number}")) for number in range(100)])
    assert sorted(one.version for one in made) == list(range(1, 101))
    assert sorted((await text_of(store, "d")).split("\n\n")) == sorted(f"note {number}" for number in range(100))


async def test_accounts_see_nothing_of_each_other(store):
    await store.write(A, DocumentWrite("d", "refund secrets", metadata={"a": 1}))
    await store.write("globex", DocumentWrite("d", "refund rules"))
    assert [passage.text for passage in await store.search("globex", "refund")] == ["refund rules"]
    assert [one["version"] for one in await store.documents("globex")] == [1]
    assert await store.search("nobody", "refund") == []
    with pytest.raises(NotFound):
        await store.document("nobody", "d")


async def test_provenance_and_metadata_are_kept_with_each_version(store):
    origin = {"run": "r1", "path": "/kb", "requester": "ana"}
    await store.write(A, DocumentWrite("d", "one", metadata={"source": "crm", "big": 2**100}, origin=origin))
    await store.write(A, DocumentWrite("d", "two", mode="replace"))
    first = await store.document(A, "d", version=1)
    assert (first["metadata"], first["origin"]) == ({"source": "crm", "big": 2**100}, origin)
    assert (first["version"], first["newest"], first["mode"]) == (1, 2, "append")
    assert first["changed"] == "2026-09-21T14:13:20+00:00"
    assert (await store.document(A, "d"))["metadata"] == {}


async def test_a_search_is_kept_to_the_collections_and_documents_named(store):
    await store.write(A, DocumentWrite("policy", "refund within 30 days", collection="policies"))
    await store.write(A, DocumentWrite("faq", "refund questions", collection="help"))
    await store.write(A, DocumentWrite("notes", "refund notes"))
    assert sorted(await found(store, "refund")) == ["faq", "notes", "policy"]
    assert await found(store, "refund", collections=["policies"]) == ["policy"]
    assert await found(store, "refund", documents=["faq"]) == ["faq"]
    assert sorted(await found(store, "refund", collections=["policies"], documents=["notes"])) == ["notes", "policy"]
    assert await found(store, "refund", collections=["nothing"]) == []
    assert [one["document"] for one in await store.documents(A, collection="help")] == ["faq"]


async def test_a_document_stays_in_its_collection_until_a_write_names_another(store):
    await store.write(A, DocumentWrite("d", "one", collection="policies"))
    await store.write(A, DocumentWrite("d", "two"))
    assert (await store.document(A, "d"))["collection"] == "policies"
    await store.write(A, DocumentWrite("d", "three", collection="archive"))
    assert [one["collection"] for one in await store.documents(A)] == ["archive"]
    assert (await store.document(A, "d", version=2))["collection"] == "policies"


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("审批", "zh"),
        ("审批步骤", "zh"),
        ("税", "zh"),
        ("期", "zh"),
        ("返金", "ja"),
        ("キャンセル", "ja"),
        ("ｷｬﾝｾﾙ", "ja"),
        ("환불", "ko"),
        ("학교", "ko"),
        ("remboursement", "fr"),
        ("ETE", "fr"),
        ("café", "fr"),
        ("refund", "en"),
        ("refunded", "en"),
        ("TK-050000", "en"),
        ("ＴＫ－０５００００", "en"),
        ("STRASSE", "de"),
        ("ยกเลิก", "th"),
        ("возврат", "ru"),
    ],
)
async def test_words_are_found_in_every_script(store, query, document):
    texts = {
        "zh": "审批步骤：客户可以在三十天内申请退款，需要缴税。有效期",
        "ja": "返金はキャンセルから七日以内に行われます。",
        "ko": "환불은 학교에서 신청할 수 있습니다.",
        "fr": "Le remboursement arrive cet été, au cafe.",
        "en": "Refunds for ticket TK-050000 are paid by bank.",
        "de": "Die Straße ist gesperrt.",
        "th": "คุณสามารถยกเลิกคำสั่งซื้อได้",
        "ru": "Возврат товара",
    }
    for name, content in texts.items():
        await store.write(A, DocumentWrite(name, content))
    assert (await found(store, query))[0] == document


@pytest.mark.parametrize(
    "query",
    ['"', '" OR "', "*", "a* OR b*", "NEAR(refund money)", "words: refund", "^refund", "-refund", "(", "", " ", "\x00", "\ud800",
     "AND", "OR", "NOT", "refund AND", "{words}: x", "'; DROP TABLE kb_part; --", "😀", "%_", "\\"],
)  # fmt: skip
async def test_nothing_in_a_query_is_syntax(store, query):
    await store.write(A, DocumentWrite("d", "refund money"))
    answer = await store.search(A, query)
    assert all(passage.document == "d" for passage in answer)
    assert await found(store, "refund") == ["d"]


async def test_a_query_of_a_hundred_thousand_words_is_answered(store):
    await store.write(A, DocumentWrite("d", "refund money"))
    query = "refund " + " ".join(f"word{number}" for number in range(100_000))
    assert await found(store, query) == ["d"]


async def test_the_passage_that_holds_more_of_the_query_comes_first(store):
    await store.write(A, DocumentWrite("one", "shipping takes three days"))
    await store.write(A, DocumentWrite("two", "refunds of damaged goods take three days"))
    await store.write(A, DocumentWrite("three", "our three shops"))
    answer = await store.search(A, "refund damaged goods three")
    assert answer[0].document == "two"
    assert [passage.score for passage in answer] == sorted((passage.score for passage in answer), reverse=True)
    assert (answer[0].score, answer[0].by_words, answer[0].by_meaning) == (1, 1, 0)
    best = await store.search(A, "refund damaged goods three", min_score=answer[0].score)
    assert [passage.document for passage in best] == ["two"]
    assert len(await store.search(A, "three", limit=2)) == 2


@pytest.mark.parametrize(
    "content",
    ["", " \n\t ", "a\x00b", "\ufeffbom", "line\r\nline\rline", "tab\tend  ", "# h\n\n\n\ntext\n", "😀👩‍👩‍👧", "a" * 5000, "\n" * 1000],
    ids=repr,
)  # fmt: skip
async def test_text_comes_back_as_it_was_written(store, content):
    await store.write(A, DocumentWrite("d", content))
    assert await text_of(store, "d") == content


async def test_lone_surrogates_become_the_replacement_character(store):
    await store.write(A, DocumentWrite("d\ud800", "a\ud800b \ud83d\ude00"))
    assert await text_of(store, "d�") == "a�b 😀"


async def test_five_megabytes_come_back_and_are_found(store):
    paragraphs = [f"Paragraph {number} says something about topic{number % 97}. " * 4 for number in range(22_000)]
    content = "\n\n".join(paragraphs)
    assert len(content) > 4_000_000
    made = await store.write(A, DocumentWrite("big", content))
    assert made.chunks > 5000
    assert await text_of(store, "big") == content
    assert "topic55" in (await store.search(A, "topic55"))[0].text


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (DocumentWrite("", "x"), "document is empty"),
        (DocumentWrite(" \x00\n", "x"), "document is empty"),
        (DocumentWrite("d" * 501, "x"), "document has 501 characters"),
        (DocumentWrite("d", "x", collection=""), "collection is empty"),
        (DocumentWrite("d", "x", mode="upsert"), "key is empty"),
        (DocumentWrite("d", "x", mode="prepend"), "mode is append, replace or upsert"),
    ],
)
async def test_a_write_that_cannot_be_meant_is_refused(store, write, said):
    with pytest.raises(StepFailed, match=said) as caught:
        await store.write(A, write)
    assert caught.value.kind == "validation_error"
    assert await store.documents(A) == []


async def test_names_are_compared_in_one_normal_form(store):
    await store.write(A, DocumentWrite(" Cafe\u0301  rules ", "one"))
    await store.write(A, DocumentWrite("Café rules", "two"))
    assert [(one["document"], one["version"]) for one in await store.documents(A)] == [("Café rules", 2)]
    assert await text_of(store, "Cafe\u0301 rules") == "one\n\ntwo"
    assert await found(store, "two", documents=["Cafe\u0301 rules"]) == ["Café rules"]


async def test_both_stores_agree_after_random_writes(tmp_path):
    database = Database.open(tmp_path / "k.db")
    stores = [MemoryKnowledge(clock=lambda: 0.0), SqliteKnowledge(database, clock=lambda: 0.0)]
    chance = random.Random(7)
    words = ["refund", "damaged", "goods", "退款", "审批步骤", "days", "policy", "café", "TK-1"]
    for _ in range(150):
        write = DocumentWrite(
            chance.choice("abc"),
            "\n\n".join(" ".join(chance.choices(words, k=chance.randint(0, 12))) for _ in range(chance.randint(1, 4))),
            chance.choice(["default", "x", "y"]),
            chance.choice(["append", "append", "replace", "upsert"]),
            chance.choice(["s1", "s2"]),
            {"n": chance.randint(0, 9)},
            chance.choice(["", "", "k1", "k2", "k3"]),
        )
        account = chance.choice([A, "globex"])
        made = [await store.write(account, write) for store in stores]
        assert made[0] == made[1]
    for account in (A, "globex"):
        listed = [await store.documents(account) for store in stores]
        assert listed[0] == listed[1]
        for one in listed[0]:
            for version in range(one["version"] + 1):
                texts = [await store.document(account, one["document"], version=version) for store in stores]
                assert texts[0] == texts[1]
        for query in words:
            answers = [{passage.text for passage in await store.search(account, query, limit=100)} for store in stores]
            assert answers[0] == answers[1]
    await database.close()


def _write_in_another_process(path, worker):
    async def work():
        database = Database.open(path)
        store = SqliteKnowledge(database)
        for number in range(20):
            await store.write(A, DocumentWrite("d", f"worker {worker} note {number}"))
            await store.write(A, DocumentWrite("shared", f"shared {number}", idempotency_key=f"k{number}"))
        await database.close()

    asyncio.run(work())


async def test_processes_that_write_one_document_lose_nothing_and_repeat_nothing(tmp_path):
    path = tmp_path / "k.db"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write_in_another_process, args=(path, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        await asyncio.to_thread(worker.join, 60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    database = Database.open(path)
    store = SqliteKnowledge(database)
    assert (await store.document(A, "d"))["newest"] == 60
    assert len(set((await text_of(store, "d")).split("\n\n"))) == 60
    assert sorted((await text_of(store, "shared")).split("\n\n")) == sorted(f"shared {number}" for number in range(20))
    await database.close()


async def test_a_write_that_fails_halfway_leaves_nothing(tmp_path):
    database = Database.open(tmp_path / "k.db")
    store = SqliteKnowledge(database)
    await store.write(A, DocumentWrite("d", "refund one"))
    await database.write(
        lambda connection: connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON kb_version BEGIN SELECT raise(ABORT, 'full'); END"
        )
    )
    with pytest.raises((Unavailable, sqlite3.Error)):
        await store.write(A, DocumentWrite("d", "fresh", mode="replace"))
    assert await text_of(store, "d") == "refund one"
    assert await found(store, "refund") == ["d"]
    assert await found(store, "fresh") == []
    await database.write(lambda connection: connection.execute("DROP TRIGGER full"))
    assert (await store.write(A, DocumentWrite("d", "fresh", mode="replace"))).version == 2
    await database.close()


async def test_what_was_written_is_there_after_the_database_was_closed(tmp_path):
    database = Database.open(tmp_path / "k.db")
    await SqliteKnowledge(database).write(A, DocumentWrite("d", "refund"))
    await database.close()
    database = Database.open(tmp_path / "k.db")
    store = SqliteKnowledge(database)
    assert await found(store, "refund") == ["d"]
    await database.close()


# ── passages, collections, versions ──


async def test_a_passage_says_where_it_lies(store):
    long = "\n\n".join(
        f"Paragraph {number} about holidays and keys, which is long enough. " * 4 for number in range(20)
    )
    await store.write(
        A, DocumentWrite("handbook", f"# Handbook\n\nWelcome.\n\n## Refunds\n\nAsk for a refund.\n\n## Leave\n\n{long}")
    )
    await store.write(A, DocumentWrite("handbook", "An appendix about submarines."))
    text = await text_of(store, "handbook")
    (refund,) = await store.search(A, "refund", limit=1)
    assert (refund.heading, refund.version) == ("Handbook > Refunds", 2)
    (appendix,) = await store.search(A, "submarines", limit=1)
    assert appendix.heading == ""
    for passage in [refund, appendix, *await store.search(A, "paragraph holidays", limit=50)]:
        assert text[passage.start : passage.end] == passage.text


async def test_a_passage_is_found_by_the_headings_above_it(store):
    rest = "\n\n".join(f"Sentence {number} of this part speaks of something else. " * 5 for number in range(10))
    await store.write(A, DocumentWrite("d", f"# Submarines\n\n## Engines\n\n{rest}\n\nThe diesel is blue."))
    found_ = await store.search(A, "submarines diesel", limit=1)
    assert "diesel" in found_[0].text
    assert found_[0].heading == "Submarines > Engines"


async def test_a_passage_knows_the_page_on_which_it_begins(store):
    pages = ["About refunds. " * 40, "About keys. " * 60, "About parcels."]
    starts = [0, len(pages[0]) + 2, len(pages[0]) + len(pages[1]) + 4]
    await store.write(A, DocumentWrite("d", "\n\n".join(pages), pages=starts))
    assert [(await store.search(A, query, limit=1))[0].page for query in ("refunds", "keys", "parcels")] == [1, 2, 3]
    await store.write(A, DocumentWrite("plain", "submarines"))
    assert (await store.search(A, "submarines"))[0].page == 0


async def test_the_history_of_a_document_says_what_each_version_was(store):
    await store.write(A, DocumentWrite("d", "one", origin={"run": "r1"}))
    await store.write(A, DocumentWrite("d", "two", origin={"run": "r2"}))
    await store.write(A, DocumentWrite("d", "all new", mode="replace", origin={"run": "r3"}))
    third, second, first = await store.versions(A, "d")
    assert [one["version"] for one in (first, second, third)] == [1, 2, 3]
    assert first["origin"] == {"run": "r1"}
    assert third["origin"]["replaced"] == {"version": 2, "changed": second["changed"], "run": "r2"}
    assert "text" not in first
    assert first["passages"] == 1
    for account, document in ((A, "nothing"), ("globex", "d")):
        with pytest.raises(NotFound):
            await store.versions(account, document)


async def test_a_removed_document_is_gone_with_all_its_versions(store):
    await store.write(A, DocumentWrite("d", "submarines", idempotency_key="k"))
    await store.write(A, DocumentWrite("d", "more submarines"))
    await store.write(A, DocumentWrite("other", "submarines"))
    with pytest.raises(NotFound):
        await store.remove("globex", "d")
    assert await store.remove(A, "d") == 2
    assert await found(store, "submarines") == ["other"]
    for look in (store.document, store.versions, store.remove):
        with pytest.raises(NotFound):
            await look(A, "d")
    assert (await store.write(A, DocumentWrite("d", "again", idempotency_key="k"))).version == 1
    assert await text_of(store, "d") == "again"


async def test_collections_are_described_and_belong_to_departments(store):
    await store.write(A, DocumentWrite("policy", "refund", collection="policies"))
    assert [(one.name, one.documents, one.department) for one in await store.collections(A)] == [("policies", 1, "")]
    made = await store.describe(A, "policies", department="Care")
    assert (made.description, made.department, made.documents) == ("", "Care", 1)
    await store.describe(A, "policies", description="What holds")
    await store.describe(A, " empty  one ", department="it")
    assert [(one.name, one.description) for one in await store.collections(A)] == [
        ("empty one", ""),
        ("policies", "What holds"),
    ]
    assert [one.name for one in await store.collections(A, department="care")] == ["policies"]
    assert await store.collections("globex") == []
    assert await store.names(A) == (["empty one", "policies"], ["policy"])
    with pytest.raises(StepFailed, match="collection is empty"):
        await store.describe(A, " ")


async def test_content_has_a_bound_that_says_what_helps(store):
    with pytest.raises(StepFailed, match=r"content has 20,000,001 characters.*write it in parts") as caught:
        await store.write(A, DocumentWrite("d", "x" * 20_000_001))
    assert caught.value.kind == "validation_error"
    assert await store.documents(A) == []


async def test_a_store_goes_on_with_the_backlog_when_it_is_woken(tmp_path):
    database = Database.open(tmp_path / "k.db")
    await SqliteKnowledge(database).write(A, DocumentWrite("d", "refund"))
    store = SqliteKnowledge(database, Meanings())
    store.wake()
    async with asyncio.timeout(30):
        while (await store.vectors(A)).vectors < 1:
            await asyncio.sleep(0.01)
    await store.aclose()
    await database.close()


async def test_metadata_has_a_bound(store):
    with pytest.raises(StepFailed, match="at most 64,000"):
        await store.write(A, DocumentWrite("d", "x", metadata={"long": "x" * 70_000}))


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("환불을", "ko"),
        ("환불은 언제", "ko"),
        ("학교에서", "ko"),
        ("きゃんせる料", "ja"),
        ("キャンセル料はいくら", "ja"),
        ("払い戻し", "ja"),
        ("退", "zh"),
        ("七天", "zh"),
        ("VPN重置", "zh"),
        ("vpn", "zh"),
        ("ＶＰＮ", "zh"),
        ("INV-2024-0031", "en"),
        ("inv‑2024‑0031", "en"),
        ("0031", "en"),
    ],
)
async def test_short_and_mixed_queries_of_asia_find_their_document(store, query, document):
    texts = {
        "zh": "退货须在七天内申请。VPN 重置请联系信息部。",
        "ja": "きゃんせる料は三千円です。キャンセル料の払い戻しはありません。",
        "ko": "환불은 학교에서만 처리합니다. 환불을 원하시면 신청서를 내세요.",
        "en": "Invoice INV-2024-0031 was paid twice.",
        "other": "Invoice INV-2023-0100 was never paid. Nothing else is said here.",
    }
    for name, content in texts.items():
        await store.write(A, DocumentWrite(name, content))
    assert (await found(store, query))[0] == document


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(max_size=60))
async def test_any_text_is_a_query(query, tmp_path_factory):
    store = await _held_open(tmp_path_factory)
    assert all(passage.document == "d" for passage in await store.search(A, query))


_OPEN = {}


async def _held_open(factory):
    """One store for all examples: none of them changes it."""
    if "store" not in _OPEN:
        database = Database.open(factory.mktemp("any") / "k.db")
        _OPEN["store"] = SqliteKnowledge(database)
        await _OPEN["store"].write(A, DocumentWrite("d", 'refund "money" AND 退款 (NEAR) a* col:x'))
    return _OPEN["store"]


# ── meaning ──


async def test_what_shares_no_word_is_found_by_its_meaning_once_there_are_vectors(hybrid):
    store, _ = hybrid
    await store.write(A, DocumentWrite("zh", "退款 政策"))
    await store.write(A, DocumentWrite("keys", "where the key of the door hangs"))
    await store.make_vectors()
    first, second = await store.search(A, "money back")
    assert (first.document, first.by_words, first.by_meaning) == ("zh", 0, 1)
    assert first.score == 0.5
    assert second.by_meaning == 2
    (both, *_) = await store.search(A, "key")
    assert (both.document, both.by_words, both.by_meaning, both.score) == ("keys", 1, 1, 1)
    assert [one.document for one in await store.search(A, "money back", min_score=0.5)] == ["zh"]


async def test_text_is_found_at_once_and_vectors_follow_by_themselves(hybrid):
    store, embedder = hybrid
    await store.write(A, DocumentWrite("d", "refund rules"))
    assert (await store.search(A, "refund"))[0].by_words == 1
    async with asyncio.timeout(30):
        while (await store.vectors(A)).vectors < 1:
            await asyncio.sleep(0.01)
    assert embedder.embedded == {"refund rules": 1}
    assert (await store.search(A, "money back"))[0].by_meaning == 1


async def test_what_has_no_vector_yet_is_ranked_by_its_words_as_if_meaning_agreed(hybrid):
    store, embedder = hybrid
    await store.write(A, DocumentWrite("old", "refund rules and money back rules of the door"))
    await store.make_vectors()
    embedder.fails = 1000
    await store.write(A, DocumentWrite("new", "refund rules, refund rules"))
    first, second = await store.search(A, "refund rules")
    assert (first.document, first.by_words, first.by_meaning, first.score) == ("new", 1, 0, 1)
    assert (second.document, second.by_words, second.by_meaning) == ("old", 2, 1)


async def test_only_what_is_new_gets_a_vector(hybrid):
    store, embedder = hybrid
    await store.write(A, DocumentWrite("d", "refund one"))
    await store.make_vectors()
    await store.write(A, DocumentWrite("d", "refund two"))
    assert await store.make_vectors() <= 1
    await store.make_vectors()
    assert embedder.embedded == {"refund one": 1, "refund two": 1}
    counted = await store.vectors(A)
    assert (counted.passages, counted.vectors, counted.problem) == (2, 2, "")


async def test_what_is_gone_is_not_near_any_more(hybrid):
    store, _ = hybrid
    for number in range(30):
        await store.write(A, DocumentWrite(f"d{number}", f"refund number {number}"))
    await store.make_vectors()
    assert len(await store.search(A, "money back", limit=50)) == 30
    for number in range(29):
        if number % 2:
            await store.remove(A, f"d{number}")
        else:
            await store.write(A, DocumentWrite(f"d{number}", "holiday", mode="replace"))
    await store.make_vectors()
    near = await store.search(A, "money back", limit=50)
    assert near[0].document == "d29"
    assert len(near) == 16
    assert {one.text for one in near[1:]} == {"holiday"}


async def test_meaning_keeps_to_the_account_and_to_what_is_named(hybrid):
    store, _ = hybrid
    await store.write(A, DocumentWrite("policy", "refund", collection="policies"))
    await store.write(A, DocumentWrite("faq", "refund", collection="help"))
    await store.write("globex", DocumentWrite("theirs", "refund"))
    await store.make_vectors()
    assert await found(store, "money back", collections=["help"]) == ["faq"]
    assert await found(store, "money back", documents=["policy"]) == ["policy"]
    assert sorted(await found(store, "money back", collections=["help"], documents=["policy"])) == ["faq", "policy"]
    assert await found(store, "money back", collections=["nothing"]) == []
    assert [one.document for one in await store.search("globex", "money back")] == ["theirs"]
    assert await store.search("nobody", "money back") == []


async def test_a_model_that_stumbles_is_told_and_text_is_found_without_it(hybrid):
    store, embedder = hybrid
    embedder.fails = 1
    await store.write(A, DocumentWrite("d", "refund rules"))
    async with asyncio.timeout(30):
        while not (await store.vectors(A)).problem:
            await asyncio.sleep(0.01)
    assert "stumbled" in (await store.vectors(A)).problem
    assert await found(store, "refund") == ["d"]
    assert await store.make_vectors() == 1
    assert (await store.vectors(A)).problem == ""


async def test_without_an_embedder_it_is_said_that_there_are_no_vectors(store):
    await store.write(A, DocumentWrite("d", "refund"))
    counted = await store.vectors(A)
    assert (counted.passages, counted.vectors) == (1, 0)
    assert "no embedding model" in counted.problem
    with pytest.raises(StepFailed, match="no embedding model"):
        await store.make_vectors()


async def test_a_process_that_ends_leaves_its_backlog_to_the_next_and_another_model_begins_anew(tmp_path):
    database = Database.open(tmp_path / "k.db")
    without = SqliteKnowledge(database)
    for number in range(9):
        await without.write(A, DocumentWrite(f"d{number}", f"refund {number}"))
    await database.close()
    database = Database.open(tmp_path / "k.db")
    first = Meanings("first")
    store = SqliteKnowledge(database, first)
    assert await store.make_vectors() == 9
    assert await SqliteKnowledge(database, Meanings("first")).make_vectors() == 0
    second = SqliteKnowledge(database, Meanings("second"))
    assert (await second.vectors(A)).vectors == 0
    assert await second.make_vectors() == 9
    assert (await second.search(A, "money back"))[0].by_meaning == 1
    await database.close()


async def test_both_stores_rank_alike(tmp_path):
    database = Database.open(tmp_path / "k.db")
    stores = [MemoryKnowledge(Meanings(), clock=lambda: 0.0), SqliteKnowledge(database, Meanings(), clock=lambda: 0.0)]
    texts = [
        "refund money back",
        "holiday leave",
        "door key refund",
        "parcel ship door",
        "退款 holiday",
        "key key parcel",
    ]
    for store in stores:
        for number, text in enumerate(texts):
            await store.write(A, DocumentWrite(f"d{number}", text, collection="ab"[number % 2]))
        await store.make_vectors()
    for query in ("refund", "door key", "休假", "parcel and refund", "money back key"):
        for collections in ((), ("a",)):
            answers = [
                [
                    (one.document, one.by_words, one.by_meaning, one.score)
                    for one in await store.search(A, query, collections=collections)
                ]
                for store in stores
            ]
            assert answers[0][:1] == answers[1][:1]
            assert {one[:2] for one in answers[0]} == {one[:2] for one in answers[1]}
    for store in stores:
        await store.aclose()
    await database.close()
