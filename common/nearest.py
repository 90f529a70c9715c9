"""The hint of an error about a name that is not there: the name that was meant, if one is likely.

    "; did you mean topics?"     for topiks
    ""                           where nothing is like it: a far guess would only send the reader astray

Who comes from Kafka knows the same things by other names, which are like none of ours.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

_LIKE: Final = 0.6
# What Spark's Kafka source and sink call options and columns; of several names the first that is known counts.
_OF_KAFKA: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka.bootstrap.servers": ("nameserver",),
    "bootstrap.servers": ("nameserver",),
    "kafka.group.id": ("group",),
    "group.id": ("group",),
    "groupidprefix": ("group",),
    "kafka.security.protocol": ("tls",),
    "kafka.ssl.truststore.location": ("tlsTrustFile",),
    "kafka.ssl.keystore.location": ("tlsKeyFile",),
    "kafka.sasl.jaas.config": ("accessKey",),
    "kafkaconsumer.polltimeoutms": ("timeoutMs",),
    "fetchoffset.numretries": ("retries",),
    "fetchoffset.retryintervalms": ("retryIntervalMs",),
    "key": ("keys",),
    "value": ("body",),
    "headers": ("properties",),
    "partition": ("queueId", "shardingKey"),
    "offset": ("queueOffset",),
    "timestamp": ("storeTimestamp",),
}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean NAME?", or nothing when no known name is likely to be meant."""
    own = {each.lower(): each for each in known}
    for meant in _OF_KAFKA.get(name.lower(), ()):
        if meant.lower() in own:
            return f"; did you mean {meant}?"
    found = difflib.get_close_matches(name.lower(), own, n=1, cutoff=_LIKE)
    return f"; did you mean {own[found[0]]}?" if found else ""
