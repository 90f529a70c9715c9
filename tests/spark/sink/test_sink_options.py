"""Options of the sink."""

import pytest

from rocketlet.client import Credentials
from rocketlet.client.producer.bulk_sender import BulkLimits
from rocketlet.common.errors import ConfigError
from rocketlet.spark.sink.sink_options import SinkOptions, parse_sink_options

HERE = {"nameserver": "127.0.0.1:9876"}


def parse(**options: str) -> SinkOptions:
    """Return the options beside a name server."""
    return parse_sink_options(HERE | options)


def test_defaults_are_safe() -> None:
    """Every row gets a key, a write has an id of its own, and messages are tried for two minutes."""
    one, other = parse(), parse()
    assert (one.idempotence_property, one.topic, one.rate) == ("IDEMPOTENCE_KEY", None, None)
    assert one.limits.patience_ms == 120_000
    assert one.run_id != other.run_id


def test_options_are_taken_in_any_case() -> None:
    """Spark hands names over in lower case."""
    options = parse(TOPIC="T", infLight="3", batchmessages="7", deliverytimeoutms="9", runid="again", group="g")
    limits = options.limits
    assert (options.topic, options.run_id, options.group) == ("T", "again", "g")
    assert (limits.in_flight, limits.batch_messages, limits.patience_ms) == (3, 7, 9)


def test_access_goes_to_the_producer() -> None:
    """Keys, TLS and the time limit of a send are those of every task."""
    options = parse(accessKey="a", secretKey="s", tls="true", tlsVerify="false", timeoutMs="77")
    settings = options.producer_settings
    assert settings.credentials == Credentials("a", "s")
    assert settings.tls is not None
    assert settings.send_timeout_ms == 77


def test_rate_is_shared_among_the_tasks() -> None:
    """Each of four tasks gets a quarter."""
    assert parse(rateLimit="1000", rateLimitTasks="4").rate == 250


def test_key_can_be_left_out() -> None:
    """An empty name is no property."""
    assert parse(idempotenceProperty="").idempotence_property is None


def test_key_is_made_of_columns() -> None:
    """Of those that are named, or of those that say where the source read the row."""
    assert parse().idempotence_columns == ()
    assert parse(idempotenceColumns="orderId, version").idempotence_columns == ("orderId", "version")
    assert parse(idempotenceColumns="source").idempotence_columns == ("offsetMsgId", "queueOffset")


def test_stream_may_have_what_spark_gives_it() -> None:
    """Where its checkpoint lies is among the options of every streaming write."""
    options = HERE | {"checkpointLocation": "/somewhere", "topic": "T"}
    assert parse_sink_options(options, is_stream=True).topic == "T"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topik": "T"}, "the rocketmq sink has no option topik; did you mean topic?"),
        ({"startingOffsets": "earliest"}, "the rocketmq sink has no option startingOffsets"),
        ({"path": "/x"}, "the rocketmq sink writes to a cluster: give nameserver, and save\\(\\) no path"),
        ({"topic": "a b"}, "topic 'a b' cannot be used"),
        ({"idempotenceProperty": "KEYS"}, "idempotenceProperty 'KEYS' cannot be used"),
        ({"idempotenceColumns": ","}, "idempotenceColumns names no column"),
        ({"idempotenceColumns": "a", "idempotenceProperty": ""}, "idempotenceProperty names no property"),
        ({"idempotenceColumns": "a", "runId": "r"}, "runId and idempotenceColumns contradict each other"),
        ({"rateLimit": "10"}, "rateLimit needs rateLimitTasks"),
        ({"rateLimitTasks": "10"}, "rateLimitTasks is given, but no rateLimit"),
        ({"inFlight": "0"}, "inFlight is 0, but must be at least 1"),
        ({"group": "a b"}, "group"),
        ({"nameserver": "nowhere"}, "name server 'nowhere' is not of the form host:port"),
        ({"nameserver": ""}, "nameserver is not given"),
        ({"accessKey": "a"}, "accessKey needs both"),
    ],
)
def test_wrong_option_is_named(options: dict[str, str], text: str) -> None:
    """One sentence says what is wrong."""
    with pytest.raises(ConfigError, match=text):
        parse(**options)


def test_stream_takes_no_run_id() -> None:
    """Its keys have to be those of its checkpoint."""
    with pytest.raises(ConfigError, match="runId does not fit"):
        parse_sink_options(HERE | {"runId": "x"}, is_stream=True)


def test_what_was_not_given_is_standard() -> None:
    """As the producer has it; sends are tried at another broker."""
    options = parse()
    assert (options.group, options.limits) == ("rocketlet-spark-sink", BulkLimits())
    settings = options.producer_settings
    assert (settings.credentials, settings.tls, settings.send_timeout_ms) == (None, None, 10_000)
    assert settings.tries_another_broker_when_not_stored_ok


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"paths": "[]"}, "paths"),
        ({"PATH": "/x"}, "PATH"),
        ({"topic": ""}, "topic"),
        ({"retries": "3"}, "retries"),
        ({"checkpointLocation": "/x"}, "checkpointLocation"),
        ({"idempotenceProperty": "KEYS"}, "idempotenceProperty"),
        ({"idempotenceColumns": ","}, "idempotenceColumns"),
        ({"idempotenceColumns": "a", "idempotenceProperty": " "}, "idempotenceColumns"),
        ({"idempotenceColumns": "a", "runId": "r"}, "runId"),
        ({"rateLimit": "10"}, "rateLimitTasks"),
        ({"rateLimitTasks": "10"}, "rateLimitTasks"),
        ({"batchMessages": "0"}, "batchMessages"),
        ({"deliveryTimeoutMs": "0"}, "deliveryTimeoutMs"),
        ({"nameserver": ""}, "nameserver"),
    ],
)
def test_error_has_the_option_as_its_key(options: dict[str, str], key: str) -> None:
    """As Spark's user wrote it."""
    with pytest.raises(ConfigError) as caught:
        parse(**options)
    assert caught.value.key == key


def test_columns_of_keys_are_words() -> None:
    """Blanks and empty ones do not count; the source's places in any case."""
    assert parse(idempotenceColumns=" a ,, b ").idempotence_columns == ("a", "b")
    assert parse(idempotenceColumns="SOURCE").idempotence_columns == ("offsetMsgId", "queueOffset")
    assert parse(idempotenceProperty="ID").idempotence_property == "ID"


def test_rate_may_be_below_one() -> None:
    """Of a task."""
    assert parse(rateLimit="1", rateLimitTasks="4").rate == 0.25
