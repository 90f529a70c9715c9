"""What happens to settings that rocketlet does not use: refused, or warned about.

``_REFUSED`` lists the keys whose neglect would lose data, split a role or open access, with the values that ask for
nothing and are therefore let through, and what would be needed.
"""

import difflib
import logging
from collections.abc import Mapping
from typing import NamedTuple

from ...common.errors import ConfigError
from .javakeys import JAVA_KEYS

logger = logging.getLogger(__name__)


class _Refusal(NamedTuple):
    harmless: frozenset[str]
    reason: str


def _unless(harmless: str, reason: str) -> _Refusal:
    return _Refusal(frozenset(harmless.split("|")), reason)


_REFUSED = {
    "brokerRole": _unless("ASYNC_MASTER", "replication is not built"),
    "brokerId": _unless("0", "slaves are not built"),
    "haMasterAddress": _unless("", "replication is not built"),
    "inSyncReplicas": _unless("1", "replication is not built"),
    "minInSyncReplicas": _unless("1", "replication is not built"),
    "allAckInSyncStateSet": _unless("false", "replication is not built"),
    "enableDLegerCommitLog": _unless("false", "the DLedger log is not built"),
    "enableControllerMode": _unless("false", "controller mode is not built"),
    "duplicationEnable": _unless("false", "a replicated log is not built"),
    "storeType": _unless("default", "the RocksDB store is not built"),
    "configManagerVersion": _unless("v1", "only the JSON config files are built"),
    "timerRocksDBEnable": _unless("false", "timer messages in RocksDB are not built"),
    "timerWheelSnapshotFlush": _unless("false", "snapshots of the timer wheel are not built"),
    "enableLmq": _unless("false", "light message queues are not built"),
    "enableMultiDispatch": _unless("false", "light message queues are not built"),
    "aclEnable": _unless("false", "access control is not built"),
    "authenticationEnabled": _unless("false", "access control is not built"),
    "authorizationEnabled": _unless("false", "access control is not built"),
    "tls.server.mode": _unless("permissive|disabled", "TLS is not built"),
    "tls.server.need.client.auth": _unless("none", "TLS is not built"),
    "tls.server.authClient": _unless("false", "TLS is not built"),
    "tls.enable": _unless("false", "TLS is not built"),
    "useTLS": _unless("false", "TLS is not built"),
}


def refuse_dangerous(settings: Mapping[str, str]) -> None:
    """Stop the start for a key that must not be neglected, the most telling one if there are several.

    Raises:
        ConfigError: a value asks for something that is not built.
    """
    for key, refusal in _REFUSED.items():
        value = settings.get(key, "").strip()
        if key in settings and value not in refusal.harmless:
            raise ConfigError(f"{key}={value} cannot be used: {refusal.reason}", key=key)


def warn_unused(settings: Mapping[str, str], *, used: frozenset[str]) -> None:
    """Name the keys that have no effect."""
    for key in settings:
        if key in used or key in _REFUSED:
            continue
        if key in JAVA_KEYS:
            logger.warning("setting %s has no effect: rocketlet does not use it", key)
            continue
        nearest = difflib.get_close_matches(key, used | JAVA_KEYS, n=1, cutoff=0)
        logger.warning("setting %s is unknown; did you mean %s?", key, nearest[0])
