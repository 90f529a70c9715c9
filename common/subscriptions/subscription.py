"""What a group wants of a topic: the tag expression and how it is matched (``FilterAPI``, ``SubscriptionData``).

What may be wrong with an SQL92 expression stands here too: those who never see one need no compiler to ask.

Rules (behaviour.md B.6.1):

- ``None``, empty and ``*`` mean everything; else tags stand between ``||``, trimmed, empties dropped.
- The broker compares hashes (``accepts_code``), the client the tags themselves (``accepts_tags``), since two tags may
  share a hash.
"""

from functools import lru_cache
from typing import Final

import msgspec

from ..properties import java_hash, to_int

ALL: Final = "*"
TAG_TYPE: Final = "TAG"
SQL92_TYPE: Final = "SQL92"
MAX_EXPRESSION_CHARACTERS: Final = 65_536
MAX_TAGS: Final = 4_096
"""Of one expression: they are kept for as long as a pull waits, or a consumer is connected."""

_BLANKS: Final = "".join(map(chr, range(33)))  # what Java's String.trim removes


class SqlSyntaxError(ValueError):
    """An expression that is no filter; its text is the remark of the answer."""


class SqlLimitError(SqlSyntaxError):
    """An expression that may be a filter, and is too large for one."""


class Subscription(msgspec.Struct, frozen=True):
    """A subscription to one topic; ``version`` is the instant in ms at which it was made or changed.

    ``accepts_all`` says that no tag is asked for; it follows from the others, once and not for each pull.
    """

    topic: str
    expression: str
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    expression_type: str = TAG_TYPE
    version: int = 0
    has_class_filter: bool = False
    accepts_all: bool = False

    def __post_init__(self) -> None:
        """Work out what follows."""
        msgspec.structs.force_setattr(self, "accepts_all", self.expression == ALL or self.has_class_filter)

    def accepts_code(self, tags_code: int | None) -> bool:
        """Tell whether the broker hands out a message with this tags code (``ExpressionMessageFilter``)."""
        if tags_code is None or self.accepts_all:
            return True
        return to_int(tags_code) in self.codes

    def accepts_tags(self, tags: str | None) -> bool:
        """Tell whether the listener gets a message with these tags (``PullAPIWrapper.processPullResult``)."""
        return not self.tags or self.has_class_filter or tags in self.tags


def parse_tag_expression(topic: str, expression: str | None, *, version: int = 0) -> Subscription:
    """Return the subscription that a tag expression describes.

    Raises:
        ValueError: No tag is left of the expression, or more than are compared.
    """
    if not expression or expression == ALL:
        return _all_of(topic) if version == 0 else Subscription(topic, ALL, version=version)
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        limit = f"limit is {MAX_EXPRESSION_CHARACTERS}"
        raise ValueError(f"the expression of topic {topic} is {len(expression)} characters, {limit}")
    tags = frozenset(tag for tag in (part.strip(_BLANKS) for part in expression.split("||")) if tag)
    if not tags:
        raise ValueError(f"expression {expression!r} of topic {topic} holds no tag")
    if len(tags) > MAX_TAGS:
        raise ValueError(f"the expression of topic {topic} holds {len(tags)} tags, limit is {MAX_TAGS}")
    return Subscription(topic, expression, tags, frozenset(map(java_hash, tags)), version=version)


@lru_cache(maxsize=1024)  # pulls bring it again and again
def _all_of(topic: str) -> Subscription:
    return Subscription(topic, ALL)
