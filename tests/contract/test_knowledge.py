"""What every knowledge store keeps to: the one in memory and the one on SQLite."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import sqlite3

import pytest

from stepwell.errors import NotFound, StepFailed, Unavailable
from stepwell.ports import DocumentWrite
from stepwell.stores.knowledge_memory import MemoryKnowledge
from stepwell.stores.knowledge_sqlite import SqliteKnowledge
from stepwell.stores.sqlite.database import Database

A = "acme"


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryKnowledge(clock=lambda: 1_790_000_000.0)
        return
    database = Database.open(tmp_path / "k.db")
    yield SqliteKnowledge(database, clock=lambda: 1_790_000_000.0)
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
    assert answer[0].score > 2 * answer[1].score > 0
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
