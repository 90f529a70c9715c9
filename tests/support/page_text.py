"""Pages of the web console as words and table cells."""

import html
import re


def text_of(page: str) -> str:
    """Return the words of a page, those of its head aside."""
    main = page[page.index("<main") :]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of the rows of all tables."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
    return [[" ".join(html.unescape(re.sub(r"<[^>]*>", " ", cell)).split()) for cell in row] for row in cells]
