"""The keys of GET_BROKER_RUNTIME_INFO and the forms in which dashboards, exporters and mqadmin read them (D.4)."""

import re
from collections.abc import Mapping

_NUMBER = r"\d+"
_DOUBLE = r"\d+\.\d+(E-?\d+)?"
_MAYBE = f"({_DOUBLE})?"
_RATES = f"{_MAYBE} {_MAYBE} {_MAYBE}"
_SIZE = r"(\d+ B|\d+\.\d [KMGTPE]iB)"
_SPANS = "<=0ms,0~10ms,10~50ms,50~100ms,100~200ms,200~500ms,500ms~1s,1~2s,2~3s,3~4s,4~5s,5~10s,10s~"
_POOLS = ("send", "pull", "litePull", "query", "ack")

FORMATS = {
    "brokerVersionDesc": r"V\d_\d+_\d+",
    "brokerVersion": _NUMBER,
    "bootTimestamp": r"\d{13}",
    "startAcceptSendRequestTimeStamp": _NUMBER,
    "earliestMessageTimeStamp": r"-1|\d{13}",
    "runtime": r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]",
    "brokerActive": "true|false",
    "putTps": _RATES,
    "getFoundTps": _RATES,
    "getMissTps": _RATES,
    "getTotalTps": f"{_DOUBLE} {_DOUBLE} {_DOUBLE}",
    "getTransferredTps": _RATES,
    "getTransferedTps": _RATES,
    "putMessageTimesTotal": r"[1-9]\d*",
    "putMessageFailedTimes": _NUMBER,
    "putMessageSizeTotal": _NUMBER,
    "putMessageAverageSize": _DOUBLE,
    "putMessageEntireTimeMax": _NUMBER,
    "getMessageEntireTimeMax": _NUMBER,
    "putMessageDistributeTime": "null|" + "".join(rf"\[{re.escape(span)}\]:\d+ " for span in re.split(",", _SPANS)),
    "putLatency99": r"\d+\.\d\d",
    "putLatency999": r"\d+\.\d\d",
    "dispatchMaxBuffer": _NUMBER,
    "dispatchBehindBytes": _NUMBER,
    "pageCacheLockTimeMills": _NUMBER,
    "commitLogMinOffset": _NUMBER,
    "commitLogMaxOffset": _NUMBER,
    "commitLogDiskRatio": r"-1\.0|[01]\.\d+",
    "consumeQueueDiskRatio": r"-1\.0|[01]\.\d+",
    "commitLogDirCapacity": f"Total : {_SIZE}, Free : {_SIZE}\\.",
    "remainHowManyDataToFlush": _SIZE,
    "remainTransientStoreBufferNumbs": _NUMBER,
    "EndTransactionQueueSize": _NUMBER,
    "EndTransactionThreadPoolQueueCapacity": _NUMBER,
    "timerReadBehind": _NUMBER,
    "timerOffsetBehind": _NUMBER,
    "timerCongestNum": _NUMBER,
    "timerEnqueueTps": _DOUBLE,
    "timerDequeueTps": _DOUBLE,
    **{
        f"msg{what}Total{day}": _NUMBER
        for what in ("Put", "Get")
        for day in ("YesterdayMorning", "TodayMorning", "TodayNow")
    },
    **{
        f"{pool}ThreadPoolQueue{what}": _NUMBER for pool in _POOLS for what in ("Size", "Capacity", "HeadWaitTimeMills")
    },
}
NEVER_OF_5_4 = {"brokerVersion", "getTransferedTps"}
"""Keys that only older tools and the exporter read."""
_MANY = {"commitLogDiskRatio_.*": r"-1\.0|[01]\.\d+", r"scheduleMessageOffset_\d+": r"\d+,\d+"}


def misfits(told: Mapping[str, str]) -> dict[str, str]:
    """Return what has another form than it should, and keys that nobody knows."""
    return {key: text for key, text in told.items() if not _fits(key, text)}


def _fits(key: str, text: str) -> bool:
    forms = [FORMATS[key]] if key in FORMATS else [form for name, form in _MANY.items() if re.fullmatch(name, key)]
    return any(re.fullmatch(form, text) for form in forms)
