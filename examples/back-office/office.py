"""The back office of the example: a few pages with a log-in, a form, a table and a file, and no interface but these.

`python office.py PORT [FILE]`; orders are kept in FILE, if one is given.
"""

from __future__ import annotations

import csv
import html
import io
import json
import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

USER, PASSWORD = "clerk", "let-me-in-please"
PAGE = "<!doctype html><meta charset=utf-8><title>{title}</title><body><h1>{title}</h1>{body}</body>"
LOGIN = """<form method=post action=/login>{said}
<label>User <input id=user name=user></label> <label>Password <input id=password name=password type=password></label>
<button id=enter>Sign in</button></form>"""
FORM = """<form method=post action=/orders>
<label>Number <input id=number name=number required></label> <label>Customer <input id=customer name=customer></label>
<label>Article <select id=article name=article><option>lamp<option>chair<option>desk</select></label>
<label>Quantity <input id=quantity name=quantity type=number value=1></label>
<label><input id=express name=express type=checkbox value=yes> Express</label>
<button id=save>Save</button></form>"""
FIELDS = ("number", "customer", "article", "quantity", "express")


class Office(ThreadingHTTPServer):
    """The pages, and what was written into them."""

    daemon_threads = True

    def __init__(self, port: int = 0, file: Path | None = None) -> None:
        super().__init__(("127.0.0.1", port), Pages)
        self.file = file
        self.sessions: set[str] = set()
        self.orders: list[dict[str, str]] = json.loads(file.read_text("utf-8")) if file and file.exists() else []

    def add(self, order: dict[str, str]) -> None:
        """A form that is sent twice is two orders: that is what makes such a system dangerous."""
        self.orders.append(order)
        if self.file:
            self.file.write_text(json.dumps(self.orders), "utf-8")


class Pages(BaseHTTPRequestHandler):
    server: Office

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path != "/login" and not self._known():
            self._go("/login")
        elif path == "/login":
            self._page("Sign in", LOGIN.format(said=""))
        elif path == "/orders/new":
            self._page("New order", FORM)
        elif path == "/orders.csv":
            self._file()
        else:
            self._page("Orders", self._table())

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        given = {name: values[0] for name, values in parse_qs(self.rfile.read(length).decode()).items()}
        if urlsplit(self.path).path == "/login":
            if (given.get("user"), given.get("password")) != (USER, PASSWORD):
                self._page("Sign in", LOGIN.format(said="<p role=alert>Wrong user or password</p>"))
                return
            session = secrets.token_hex(8)
            self.server.sessions.add(session)
            self._go("/orders", cookie=session)
        elif not self._known():
            self._go("/login")
        else:
            self.server.add({name: given.get(name, "") for name in FIELDS})
            self._go("/orders")

    def _known(self) -> bool:
        return self.headers.get("cookie", "").removeprefix("office=") in self.server.sessions

    def _table(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(order[name])}</td>" for name in FIELDS) + "</tr>"
            for order in self.server.orders
        )
        head = "".join(f"<th>{name}</th>" for name in FIELDS)
        return f'<table id=orders><tr>{head}</tr>{rows}</table><p><a id=export href="/orders.csv">Export</a></p>'

    def _file(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, FIELDS)
        writer.writeheader()
        writer.writerows(self.server.orders)
        self._answer(
            text.getvalue(), kind="text/csv", headers={"content-disposition": 'attachment; filename="orders.csv"'}
        )

    def _page(self, title: str, body: str) -> None:
        self._answer(PAGE.format(title=title, body=body))

    def _go(self, where: str, cookie: str = "") -> None:
        headers = {"location": where} | ({"set-cookie": f"office={cookie}; HttpOnly"} if cookie else {})
        self._answer("", status=HTTPStatus.SEE_OTHER, headers=headers)

    def _answer(
        self,
        text: str,
        *,
        status: HTTPStatus = HTTPStatus.OK,
        kind: str = "text/html; charset=utf-8",
        headers: dict[str, str] | None = None,
    ) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    office = Office(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    sys.stdout.write(f"the office is open at http://127.0.0.1:{office.server_port}/\n")
    sys.stdout.flush()
    office.serve_forever()
