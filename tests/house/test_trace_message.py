"""The benchmark that counts what one message passes sees the whole way of it, and nothing else."""

import ast
import asyncio

from trace_message import ROOT, Call, describe_calls, measure_package, trace_message


def test_trace_names_the_functions_that_a_message_passes() -> None:
    """The calls lead from the producer over broker and log to the consumer, and are those of existing functions."""
    calls = asyncio.run(trace_message())
    parts = {call.part for call in calls} - {"namesrv"}  # to which the broker may turn meanwhile
    assert parts == {"broker", "client", "common", "remoting", "store"}
    assert any(call.function == "Producer.send" for call in calls)
    assert any(call.file.startswith("store/commitlog/") for call in calls)
    assert all((ROOT / call.file).is_file() for call in calls)


def test_calls_are_counted_by_part() -> None:
    """Repeated calls of a function count once as a function, a file once for all of its functions."""
    send, append = Call("client/producer.py", "Producer.send"), Call("store/log.py", "Log.append")
    assert describe_calls([send, append, append, send]) == [
        "calls 4, functions 2, files 2, changes of part 2",
        "  client: calls 2, functions 1, files 1",
        "  store: calls 2, functions 1, files 1",
    ]


def test_size_counts_files_with_code() -> None:
    """Modules are the files with code, short functions are among all of them."""
    size = measure_package()
    common = [ast.parse(path.read_text()) for path in (ROOT / "common").glob("*.py")]
    assert size.modules > sum(len(tree.body) > 1 for tree in common) > 0
    assert 0 < size.short_functions < size.functions
