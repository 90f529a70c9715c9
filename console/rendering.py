"""Pages out of templates: what every template can use, and notes that are shown once after a form.

Templates escape everything. A note is kept here and the address names it by number, so nobody can put words into a
page by a link.
"""

import secrets
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from .access import FORM_KEY, Access
from .message_view import format_ms

FOLDER: Final = Path(__file__).parent
_MOST_NOTES: Final = 100


class Rendering:
    """Makes answers out of templates, which are read when it is built."""

    def __init__(self, cluster: str, access: Access) -> None:
        self._notes: OrderedDict[str, str] = OrderedDict()
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._everywhere = {"cluster": cluster, "form_key_name": FORM_KEY, "form_key": access.form_key}
        self._templates.filters |= {"time": format_ms, "path": _path, "count": _count, "rate": format_rate}
        for name in self._templates.list_templates():
            self._templates.get_template(name)  # pages read no files

    def show(self, request: Request, template: str, code: int = 200, **values: Any) -> Response:
        """Return a page."""
        note = self._notes.pop(request.query_params.get("note", ""), None)
        values |= {**self._everywhere, "path": request.url.path, "note": note}
        text = self._templates.get_template(template).render(values)
        return HTMLResponse(text, code)

    def go(self, path: str, note: str) -> Response:
        """Send the browser to a page that shows a note."""
        number = secrets.token_urlsafe(8)
        self._notes[number] = note
        while len(self._notes) > _MOST_NOTES:
            self._notes.popitem(last=False)
        return RedirectResponse(f"{path}?note={number}", 303)


def _path(name: str) -> str:
    """Return a name as a part of an address; names of groups and topics hold percent signs."""
    return quote(name, safe="")


def _count(number: int) -> str:
    return f"{number:,}"


def format_rate(per_second: float) -> str:
    """Return how often something happens in a second."""
    return f"{per_second:,.1f}" if per_second < 100 else f"{per_second:,.0f}"
