"""What calls of the client API return."""

from rocketlet.client import MessageQueue, SendResult, SendStatus


def test_result_without_the_broker_s_extras_has_javas_defaults() -> None:
    """For who makes results in tests of an application: no transaction, no region, no handle; traces are on."""
    result = SendResult(SendStatus.SEND_OK, "ID", "OFFSET-ID", MessageQueue("T", "broker-a", 0), 7)
    assert (result.transaction_id, result.region_id, result.recall_handle) == (None, None, None)
    assert result.is_traced is True
