"""The broker's settings by Java's keys."""

import json
import logging
import pathlib
import socket

import pytest

from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.errors import ConfigError

SEED_2 = {
    "namesrvAddr": "192.168.1.100:9876; 192.168.1.101:9876",
    "brokerClusterName": "itzhai-com-cluster",
    "brokerIP1": "192.168.1.100",
    "listenPort": "10911",
    "brokerName": "broker-1",
    "brokerId": "0",
    "deleteWhen": "02",
    "fileReservedTime": "48",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "autoCreateTopicEnable": "true",
    "storePathRootDir": "/nowhere/store",
}


@pytest.mark.feature("H7")
def test_usual_file_makes_a_config() -> None:
    """The keys of an ordinary broker.conf are taken."""
    config = BrokerConfig.from_java(SEED_2)
    assert (config.cluster_name, config.broker_name, config.port) == ("itzhai-com-cluster", "broker-1", 10911)
    assert config.nameserver_list == ("192.168.1.100:9876", "192.168.1.101:9876")
    assert config.advertised_host == "192.168.1.100"
    assert config.store.root == "/nowhere/store"


def test_defaults_are_those_of_java() -> None:
    """An empty file means Java's defaults, but for the address, which is this machine only."""
    config = BrokerConfig.from_java({})
    assert (config.port, config.cluster_name, config.host) == (10911, "DefaultCluster", "127.0.0.1")
    assert config.broker_name == socket.gethostname()
    assert (config.default_topic_queues, config.auto_create_topics, config.register_every_ms) == (8, True, 30_000)


def test_every_default_is_that_of_java(vectors: pathlib.Path) -> None:
    """Only the address, ports that follow from one another, what would forget topics, and what costs writes differ.

    Leases are kept in memory (``docs/decisions/leases.md``): a kill loses none, and either broker reads the log.
    """
    java = json.loads((vectors / "codec" / "config-defaults.json").read_text())
    known = {
        key: value
        for part in ("BrokerConfig", "NettyServerConfig", "MessageStoreConfig")
        for key, value in java[part].items()
    }
    ours = {row.key: row.default for row in BrokerConfig.from_java({}).describe()}
    assert {key: value for key, value in ours.items() if known.get(key, value) != value} == {
        "bindAddress": "127.0.0.1",
        "listenPort": "10911",
        "haListenPort": "0",
        "enableSingleTopicRegister": "true",
        "enablePopBufferMerge": "true",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allAckInSyncStateSet", "true"),
        ("duplicationEnable", "true"),
        ("aclEnable", "true"),
        ("authorizationEnabled", "true"),
        ("enableDLegerCommitLog", "true"),
        ("storeType", "defaultRocksDB"),
        ("popConsumerKVServiceEnable", "true"),
        ("enableControllerMode", "true"),
        ("enableRemoteEscape", "true"),
        ("enableLmq", "true"),
    ],
)
def test_dangerous_key_stops_the_start(key: str, value: str) -> None:
    """A key whose neglect would lose data, split a role or open access is named and refused."""
    with pytest.raises(ConfigError, match=key) as refused:
        BrokerConfig.from_java({key: value})
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "many"),
        ("deleteWhen", "24"),
        ("listenPort", "65536"),
        ("listenPort", "-1"),
        ("autoCreateTopicEnable", "yes"),
        ("defaultTopicQueueNums", "0"),
        ("mappedFileSizeCommitLog", "1g"),
        ("brokerName", ""),
        ("brokerName", "two\nlines"),
        ("bindAddress", ""),
        ("storePathRootDir", ""),
        ("namesrvAddr", "localhost"),
        ("namesrvAddr", "127.0.0.1:9876;127.0.0.1:65536"),
        ("brokerClusterName", "a/b"),
        ("brokerRole", "MASTER"),
        ("brokerRole", ""),
        ("haFlowControlEnable", "perhaps"),
    ],
)
def test_bad_value_stops_the_start(key: str, value: str) -> None:
    """A value that does not parse, is out of range or cannot be a name is refused, naming its key."""
    with pytest.raises(ConfigError, match=key) as refused:
        BrokerConfig.from_java({key: value})
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("key", "least", "most"),
    [
        ("haSendHeartbeatInterval", 1, None),
        ("haHousekeepingInterval", 1, None),
        ("haTransferBatchSize", 1, 1 << 20),
        ("haMaxGapNotInSync", 1, None),
        ("maxHaTransferByteInSecond", 1, None),
        ("slaveTimeout", 0, None),
        ("inSyncReplicas", 1, 100),
        ("minInSyncReplicas", 1, None),
        ("totalReplicas", 1, 100),
        ("brokerHeartbeatInterval", 1, None),
        ("brokerNotActiveTimeoutMillis", 1, None),
        ("syncBrokerMemberGroupPeriod", 1, None),
        ("listenPort", 0, 65_535),
        ("haListenPort", 0, 65_535),
        ("brokerPermission", 0, 7),
        ("defaultTopicQueueNums", 1, None),
        ("reviveQueueNum", 1, None),
        ("expectConsumerNumUseFilter", 1, 1 << 20),
        ("maxErrorRateOfBloomFilter", 1, 99),
        ("defaultQueryMaxNum", 1, None),
        ("flushConsumerOffsetInterval", 1, None),
        ("consumerOffsetUpdateVersionStep", 1, None),
        ("flushDelayOffsetInterval", 1, None),
        ("delayOffsetUpdateVersionStep", 1, None),
        ("transactionCheckInterval", 1, None),
        ("transactionOpMsgMaxSize", 1, None),
        ("splitRegistrationSize", 2, None),
        ("registerBrokerTimeoutMills", 1, None),
        ("serverChannelMaxIdleTimeSeconds", 1, None),
        ("writeBufferHighWaterMark", 0, None),
        ("writeBufferLowWaterMark", 0, None),
        ("sendThreadPoolQueueCapacity", 1, None),
        ("osPageCacheBusyTimeOutMills", 1, None),
        ("waitTimeMillsInSendQueue", 0, None),
    ],
)
def test_numbers_have_bounds(key: str, least: int, most: int | None) -> None:
    """The least and the greatest number are taken; the one before or behind it stops the start and names the key."""
    for value in (least, least if most is None else most):
        BrokerConfig.from_java({key: str(value)})
    for value in (least - 1, *([] if most is None else [most + 1])):
        with pytest.raises(ConfigError, match=key):
            BrokerConfig.from_java({key: str(value)})


def test_blanks_around_a_value_do_not_count() -> None:
    """Java keeps trailing blanks of a properties value and then ignores the number; here it counts."""
    assert BrokerConfig.from_java({"listenPort": " 10921 "}).port == 10921


def test_known_but_unused_key_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """A key of Java's without effect here is warned about by name, a used one is not."""
    with caplog.at_level(logging.WARNING):
        BrokerConfig.from_java(
            {"pullThreadPoolQueueCapacity": "48", "listenPort": "10911", "sendMessageThreadPoolNums": "16"}
        )
    assert [record.getMessage() for record in caplog.records] == [
        "setting pullThreadPoolQueueCapacity has no effect: rocketlet does not use it",
        "setting sendMessageThreadPoolNums has no effect: rocketlet does not use it",
    ]


def test_unknown_key_is_named_with_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    """A misspelt key is warned about with the key that was probably meant."""
    with caplog.at_level(logging.WARNING):
        BrokerConfig.from_java({"autoCreateTopicEnabled": "false"})
    assert caplog.messages == ["setting autoCreateTopicEnabled is unknown; did you mean autoCreateTopicEnable?"]


@pytest.mark.parametrize(("given", "used"), [("1", 10_000), ("45000", 45_000), ("600000", 60_000)])
def test_registration_period_has_bounds(given: str, used: int) -> None:
    """As in Java the period counts between 10 s and 60 s."""
    assert BrokerConfig.from_java({"registerNameServerPeriod": given}).register_every_ms == used


def test_description_lists_each_used_key_once() -> None:
    """--print-config shows key, value, default and meaning of broker and store settings."""
    rows = BrokerConfig.from_java({"listenPort": "1", "mappedFileSizeCommitLog": "4096"}).describe()
    values = {row.key: (row.value, row.default) for row in rows}
    assert len(values) == len(rows)
    assert values["listenPort"] == ("1", "10911")
    assert values["mappedFileSizeCommitLog"] == ("4096", "1073741824")
    assert all(row.meaning for row in rows)


@pytest.mark.feature("R24")
@pytest.mark.parametrize("number", ["0", "-1"])
def test_slave_needs_a_number(number: str) -> None:
    """A slave whose brokerId is not above 0 stops the start; that is the default, too."""
    for given in ({"brokerId": number}, {}):
        with pytest.raises(ConfigError, match="a slave's must be above 0") as refused:
            BrokerConfig.from_java({"brokerRole": "SLAVE", **given})
        assert refused.value.key == "brokerId"


@pytest.mark.feature("R24")
@pytest.mark.parametrize(
    ("role", "number", "used"),
    [
        ("ASYNC_MASTER", "3", 0),
        ("SYNC_MASTER", "-1", 0),
        ("SLAVE", "3", 3),
        ("SLAVE", str((1 << 63) - 1), (1 << 63) - 1),
    ],
)
def test_master_has_number_0(role: str, number: str, used: int) -> None:
    """Whatever the settings say, as in Java; a slave has the number that it is given."""
    assert BrokerConfig.from_java({"brokerRole": role, "brokerId": number}).broker_id == used


@pytest.mark.parametrize(
    ("role", "replicas", "needed"), [("SYNC_MASTER", 1, 0), ("SYNC_MASTER", 3, 2), ("ASYNC_MASTER", 3, 0)]
)
def test_senders_wait_for_slaves_of_a_sync_master(role: str, replicas: int, needed: int) -> None:
    """The master is one of inSyncReplicas, so with the default nobody is waited for."""
    config = BrokerConfig.from_java({"brokerRole": role, "inSyncReplicas": str(replicas)})
    assert config.replication.needed_acks == needed


@pytest.mark.parametrize(("address", "used"), [("10.0.0.1:10912", "10.0.0.1:10912"), ("a:1", ""), ("", "")])
def test_master_may_be_named(address: str, used: str) -> None:
    """An haMasterAddress of less than six characters is none, as in Java."""
    assert BrokerConfig.from_java({"haMasterAddress": address}).replication.named_master == used


@pytest.mark.parametrize(("kind", "is_told"), [("OTLP_GRPC", True), ("LOG", True), ("PROM", False), ("DISABLE", False)])
def test_exporter_that_is_not_built_is_told(kind: str, is_told: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The start goes on without it."""
    assert BrokerConfig.from_java({"metricsExporterType": kind}).metrics_exporter == kind
    assert ("only PROM is built" in caplog.text) == is_told


def test_region_is_bounded() -> None:
    """It stands in each message: 255 characters are taken, one more is not, nor is one that cannot be printed."""
    assert BrokerConfig.from_java({"regionId": "r" * 255}).region_id == "r" * 255
    for region in ("r" * 256, "r\x01"):
        with pytest.raises(ConfigError, match="255 characters at most"):
            BrokerConfig.from_java({"regionId": region})
