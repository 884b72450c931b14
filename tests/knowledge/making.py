"""Small files of documents, made byte by byte, so that tests hold no binary files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from itertools import accumulate

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_XML = '<?xml version="1.0" encoding="UTF-8"?>'


def docx(heading: str, paragraphs: Sequence[str], table: Sequence[Sequence[str]] = ()) -> bytes:
    """A Word document with a heading, paragraphs and a table."""
    head = f'<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>{heading}</w:t></w:r></w:p>' if heading else ""
    body = head + "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    cells = ["".join(f"<w:tc><w:p><w:r><w:t>{cell}</w:t></w:r></w:p></w:tc>" for cell in row) for row in table]
    body += f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>" if table else ""
    level = '<w:pPr><w:outlineLvl w:val="0"/></w:pPr>'
    style = f'<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/>{level}</w:style>'
    parts = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="{_TYPE}.{kind}+xml"/>'
        for name, kind in (("document", "document.main"), ("styles", "styles"))
    )
    files = {
        "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{parts}</Types>',
        "_rels/.rels": _relation("officeDocument", "word/document.xml"),
        "word/_rels/document.xml.rels": _relation("styles", "styles.xml"),
        "word/styles.xml": f'{_XML}<w:styles xmlns:w="{_WORD}">{style}</w:styles>',
        "word/document.xml": f'{_XML}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


def _relation(kind: str, target: str) -> str:
    one = f'<Relationship Id="rId1" Type="{_OFFICE}/{kind}" Target="{target}"/>'
    return f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">{one}</Relationships>'


def pdf(pages: Sequence[str], *, locked: bool = False) -> bytes:
    """A PDF with a page for each text, in any script: codes of characters are their numbers, and a map says so."""
    used = sorted({ord(character) for page in pages for character in page if character != "\n"})
    known = "".join(f"1 beginbfchar\n<{code:04X}> <{code:04X}>\nendbfchar\n" for code in used)
    unicode = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /M def /CMapType 2 def\n"
        f"1 begincodespacerange <0000> <FFFF> endcodespacerange\n{known}endcmap end end\n"
    )
    kids = " ".join(f"{7 + 2 * index} 0 R" for index in range(len(pages)))
    system = "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >>"
    measures = "/FontBBox [0 0 1000 1000] /ItalicAngle 0 /Ascent 800 /Descent -200 /CapHeight 700 /StemV 80"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type0 /BaseFont /M /Encoding /Identity-H /DescendantFonts [4 0 R] /ToUnicode 6 0 R >>",
        f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /M {system} /DW 1000 /FontDescriptor 5 0 R >>",
        f"<< /Type /FontDescriptor /FontName /M /Flags 4 {measures} >>",
        _stream(unicode),
    ]
    for index, page in enumerate(pages):
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F 3 0 R >> >>"
            f" /Contents {8 + 2 * index} 0 R >>"
        )
        objects.append(_stream("".join(_line(line, 780 - 20 * at) for at, line in enumerate(page.split("\n")))))
    lock = f" /Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -4 /O <{'28' * 32}> /U <{'41' * 32}> >> /ID [<00> <00>]"
    head = b"%PDF-1.7\n"
    bodies = [f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1") for number, body in enumerate(objects, 1)]
    offsets = list(accumulate((len(body) for body in bodies), initial=len(head)))
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets[:-1])
    size = len(objects) + 1
    tail = (
        f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer << /Size {size} /Root 1 0 R{lock if locked else ''} >>\n"
        f"startxref\n{offsets[-1]}\n%%EOF\n"
    )
    return head + b"".join(bodies) + tail.encode()


def _stream(text: str) -> str:
    return f"<< /Length {len(text)} >>\nstream\n{text}endstream"


def _line(text: str, height: int) -> str:
    codes = "".join(f"{ord(character):04X}" for character in text)
    return f"BT /F 12 Tf 50 {height} Td <{codes}> Tj ET\n" if text else ""
