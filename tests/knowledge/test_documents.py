"""Files become documents: every format, every encoding, and what is told of files that cannot be read."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stepwell.adapters.documents import files_below, read_document
from stepwell.engine.documents import Documents, ToAdd
from stepwell.engine.people import People
from stepwell.errors import InputError
from stepwell.ports import DocumentWrite
from stepwell.stores.knowledge_memory import MemoryKnowledge
from stepwell.stores.memory import MemoryRunStore
from tests.knowledge.making import docx, pdf

A = "default"
PAGE = """<!doctype html><html><head><title>Refunds &amp; more</title><meta charset="CHARSET">
<style>x{color:red}</style><script>alert('evil')</script></head><body><nav><a href="/">Home</a></nav>
<main><h1>Refunds</h1><p>Damaged <b>goods</b> &lt; 14 days.</p><script>more()</script>
<table><tr><th>Land</th><th>Days</th></tr><tr><td>France</td><td>30</td></tr></table><p>退款须在十四天内</p></main></body></html>"""


@pytest.fixture
def put(tmp_path):
    def put(name, content):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return put


@pytest.mark.parametrize(
    ("name", "data", "encoding"),
    [
        ("a.txt", "退款 café".encode(), ""),
        ("a.md", "退款 café".encode("utf-8-sig"), ""),
        ("a.txt", "退款 café".encode("utf-16"), ""),
        ("a.TXT", b"\xfe\xff" + "退款 café".encode("utf-16-be"), ""),
        ("a.txt", "退款 café".encode("utf-32"), ""),
        ("a.txt", "退款 café".encode("gb18030"), "gb18030"),
    ],
)
def test_text_is_read_by_its_mark_as_utf8_or_as_is_said(put, name, data, encoding):
    assert read_document(put(name, data), encoding=encoding).text == "退款 café"


def test_utf16_without_a_mark_is_seen_by_its_zeros(put):
    for encoding in ("utf-16-le", "utf-16-be"):
        assert read_document(put("a.txt", "plain text".encode(encoding))).text == "plain text"


@pytest.mark.parametrize("charset", ["utf-8", "gb18030"])
def test_a_page_gives_its_content_and_title_without_scripts_and_navigation(put, charset):
    read = read_document(put("a.html", PAGE.replace("CHARSET", charset).encode(charset)))
    assert read.title == "Refunds & more"
    assert read.text.startswith("# Refunds")
    assert "Damaged **goods** < 14 days." in read.text.replace("&lt;", "<")
    assert "| France" in read.text
    assert "退款须在十四天内" in read.text
    for left_out in ("evil", "more()", "color", "Home", "title"):
        assert left_out not in read.text


def test_a_word_document_keeps_headings_and_tables(put):
    data = docx(
        "Refund policy", ["Damaged goods: 14 days.", "退款须在十四天内。"], [["Land", "Days"], ["France", "30"]]
    )
    read = read_document(put("a.docx", data))
    assert read.text.startswith("# Refund policy\n\nDamaged goods: 14 days.\n\n退款须在十四天内。")
    assert "| France | 30 |" in read.text


def test_a_pdf_says_where_its_pages_begin(put):
    pages = ["Refund policy\nDamaged goods: 14 days.", "第二页\n退款须在十四天内。", "", "キャンセル料と환불"]
    read = read_document(put("a.pdf", pdf(pages)))
    starts = [*read.pages, len(read.text)]
    assert len(read.pages) == 4
    found = [read.text[begin:end].strip() for begin, end in pairwise(starts)]
    assert found == pages
    assert read.note == "1 page of 4 without text"


@pytest.mark.parametrize(
    ("name", "data", "said", "hint"),
    [
        ("a.xlsx", b"x", "files of this kind cannot be read (.xlsx)", ".docx"),
        ("a", b"x", "no suffix", ".txt"),
        ("a.txt", b" \n", "the file is empty", ""),
        ("a.pdf", b"", "the file is empty", ""),
        ("a.txt", "退款申请".encode("gb18030"), "this is not UTF-8 text: byte 0 is wrong", "--encoding: it could be gb18030"),
        ("a.txt", b"abc\x00\x01\x02def", "this is no text: it holds NUL bytes", ""),
        ("a.txt", b"\xff\xfea", "this is not utf-16 text", "UTF-8"),
        ("a.pdf", b"%PDF-1.4 nonsense", "the file is damaged, or is no PDF", "save it anew as PDF"),
        ("a.pdf", pdf(["secret"], locked=True), "the file is protected by a password", "save it without one"),
        ("a.pdf", pdf(["", ""]), "there is no text in it, only 2 pages", "OCR"),
        ("a.docx", b"PK\x03\x04 nonsense", "the file is damaged, or is no DOCX", "save it anew as DOCX"),
        ("a.docx", docx("", [""]), "there is no text in it", ""),
        ("a.html", b"<html><script>x</script></html>", "there is no text in it", ""),
        ("missing.txt", None, "the file cannot be read: No such file or directory", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_what_is_wrong_and_what_helps(put, tmp_path, name, data, said, hint):
    file = put(name, data) if data is not None else tmp_path / name
    with pytest.raises(InputError) as caught:
        read_document(file)
    (problem,) = caught.value.problems
    assert said in problem.message
    assert hint in problem.hint
    assert problem.file == str(file)


def test_an_encoding_that_does_not_exist_or_does_not_fit_is_told(put):
    for encoding, said in (("klingon", "there is no encoding 'klingon'"), ("ascii", "this is not ascii text: byte 0")):
        with pytest.raises(InputError, match=said):
            read_document(put("a.txt", "é"), encoding=encoding)


def test_without_the_library_it_is_said_what_to_install(put, monkeypatch):
    monkeypatch.setattr("stepwell.adapters.documents.find_spec", lambda _: None)
    with pytest.raises(InputError) as caught:
        read_document(put("a.pdf", pdf(["x"])))
    assert caught.value.problems[0].hint.endswith("extras docs")
    assert read_document(put("a.md", "x")).text == "x"


def test_folders_give_what_can_be_read_below_them(put, tmp_path):
    for name in ("b/x.md", "b/c/y.txt", "b/.hidden/z.md", "b/.z.md", "b/picture.png", "top.md"):
        put(name, "x")
    found = files_below([tmp_path / "b", tmp_path / "top.md", tmp_path / "b" / "x.md"])
    assert [str(file.relative_to(tmp_path)) for file, _ in found] == ["b/c/y.txt", "b/x.md", "top.md"]
    with pytest.raises(InputError, match="no such file"):
        files_below([tmp_path / "nothing"])


class Base:
    def __init__(self):
        self.store = MemoryKnowledge()
        self.people = People(MemoryRunStore().people, A)
        self.documents = Documents(self.store, self.people, A)

    async def add(self, *files):
        return [(one.status, one.version) async for one in self.documents.add(files)]


async def test_what_has_not_changed_makes_no_version_and_what_has_does(put):
    base, file = Base(), put("refunds.md", "# Refunds\n\nThirty days.")
    one = ToAdd(file, "refunds", "policies")
    assert await base.add(one, one) == [("added", 1), ("unchanged", 1)]
    file.write_text("# Refunds\n\nTen days.")
    assert await base.add(one) == [("added", 2)]
    assert await base.add(ToAdd(file, "refunds", "archive")) == [("added", 3)]
    newest, *_ = await base.store.versions(A, "refunds")
    assert (newest["collection"], newest["metadata"]["file"]) == ("archive", "refunds.md")
    assert newest["origin"]["file"] == str(file)
    assert newest["origin"]["replaced"]["version"] == 2


async def test_a_page_number_comes_with_the_passage(put):
    base = Base()
    await base.add(ToAdd(put("a.pdf", pdf(["About refunds.\n" * 30, "About submarines."])), "a"))
    (passage, *_) = await base.store.search(A, "submarines")
    assert passage.page in {1, 2}
    assert (await base.store.document(A, "a"))["text"][passage.start : passage.end] == passage.text


async def test_one_bad_file_does_not_stop_the_others(put):
    base = Base()
    files = [ToAdd(put("bad.pdf", b"%PDF"), "bad"), ToAdd(put("good.md", "good"), "good"), ToAdd(put("n.md", "x"), " ")]
    done = [one async for one in base.documents.add(files)]
    assert [one.status for one in done] == ["failed", "added", "failed"]
    assert "no PDF" in done[0].problem.message
    assert "document is empty" in done[2].problem.message


async def test_a_file_never_takes_the_place_of_what_is_not_its_own(put):
    base = Base()
    await base.add(ToAdd(put("policies/refunds.md", "policy"), "refunds", "policies"))
    await base.store.write(A, DocumentWrite("log", "line", origin={"run": "r"}))
    faq = put("faq/refunds.md", "question")
    done = [one async for one in base.documents.add([ToAdd(faq, "refunds", "faq"), ToAdd(faq, "log")])]
    assert [one.status for one in done] == ["failed", "failed"]
    assert "already, in the collection 'policies'" in done[0].problem.message
    assert "written by runs" in done[1].problem.message
    assert all("--document" in one.problem.hint for one in done)


async def test_what_people_do_to_documents_is_in_the_trail(put):
    base = Base()
    await base.add(ToAdd(put("a.md", "x"), "a"))
    await base.documents.describe("policies", department="care", description="What holds")
    assert await base.documents.remove("a") == 1
    trail = await base.people.trail()
    assert [(one.action, one.object, one.detail) for one in trail] == [
        ("document.remove", "a", {"versions": 1}),
        ("collection.describe", "policies", {"description": "What holds", "department": "care"}),
    ]
