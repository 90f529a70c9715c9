"""Good requests to broker and name server, one for each request code; what they need is there after ``prepare``."""

import json
from typing import Any

from badinput.case import Case, LongBody, describe_body
from badinput.variations import Sample, encode_body, vary
from raw_calls import Caller, heartbeat_body, send_header

from rocketlet.common.message import PULL_SUBSCRIPTION
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.remoting.codec.request_codes import RequestCode as Code

_AUTH = "org.apache.rocketmq.auth"
SETTINGS_OF_BROKER = {
    "recallMessageEnable": "true",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
TOPIC, SENT_TOPIC, GROUP, PRODUCERS, CLIENT = "BadInput", "BadInputSent", "GID-bad", "PID-bad", "client-bad"
MESSAGES = 3
HOST = "192.0.2.7:10911"  # a broker that is only registered
BORN = "1700000000000"
QUEUE = {"topic": TOPIC, "queueId": "0"}
SUBSCRIPTION = {
    "classFilterMode": False,
    "codeSet": [97],
    "expressionType": "TAG",
    "subString": "a",
    "subVersion": 1,
    "tagsSet": ["a"],
    "topic": TOPIC,
}
LONG_SEND = {
    "producerGroup": PRODUCERS,
    "topic": SENT_TOPIC,
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": BORN,
    "flag": "0",
    "properties": "KEYS\x01k\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "false",
    "maxReconsumeTimes": "16",
}
LETTERS = dict(zip(LONG_SEND, "abcdefghijkml", strict=True))
LETTER_SEND = {LETTERS[name]: value for name, value in LONG_SEND.items()} | {"n": "broker-a"}
PULL = {
    "consumerGroup": GROUP,
    **QUEUE,
    "queueOffset": "0",
    "maxMsgNums": "2",
    "sysFlag": str(PULL_SUBSCRIPTION),
    "commitOffset": "0",
    "suspendTimeoutMillis": "1000",
    "subscription": "*",
    "subVersion": "1",
    "expressionType": "TAG",
    "maxMsgBytes": "4096",
    "requestSource": "0",
}
CREATE_TOPIC = {
    "topic": "BadInputMade",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
    "attributes": "+message.type=NORMAL",
    "force": "false",
}
TOPICS = ["TBW102", "SCHEDULE_TOPIC_XXXX", "%RETRY%GID-bad", "%SYS%x", "DefaultCluster", "broker-a"]
ATTRIBUTES = [
    *("+", "-", "=", "+=", "+=x", "+a", "-a=b", "a=b", "+a=b", "+a=b=c", ",", "-gone"),
    *("+message.type=", "+message.type=X", "+message.type=MIXED", ",,+message.type=FIFO", " +message.type=FIFO"),
    *("+message.type=FIFO,+message.type=DELAY", "+message.type=FIFO,-message.type"),
    *("++message.type=FIFO", "+-message.type=FIFO", "+queue.type=BatchCQ"),
    *("+reserve.time=soon", "+reserve.time=-2", "+reserve.time=99999999999999999999"),
]
PROPERTIES = ["a", "a\x01", "\x01b\x02", "a\x01b\x01c\x02", "DELAY\x01x\x02", "DELAY\x01-1\x02", "\x02\x02"]
SENDS = {
    "topic": ["SCHEDULE_TOPIC_XXXX", "%RETRY%GID-none", "%DLQ%GID-bad", "TBW102"],
    "queueId": ["4", "99"],
    "properties": PROPERTIES,
    "defaultTopicQueueNums": ["0"],
    "sysFlag": ["1", "255"],
}
LETTER_SENDS = {LETTERS[name]: values for name, values in SENDS.items()}
PULLS = {
    "subscription": ["||", "a||", "a b", "*||a"],
    "expressionType": ["SQL92", "tag", "SQL"],
    "topic": ["SCHEDULE_TOPIC_XXXX", "%RETRY%GID-none"],
    "queueId": ["4"],
    "maxMsgBytes": ["0", "1"],
    "sysFlag": ["0", "1", "8", "255"],
    "queueOffset": ["1", "4"],
}
SEND_BACK = {
    "offset": "0",
    "group": GROUP,
    "delayLevel": "1",
    "originMsgId": "7F000001000000000000",
    "originTopic": TOPIC,
    "unitMode": "false",
    "maxReconsumeTimes": "16",
}
END_TRANSACTION = {
    "topic": TOPIC,
    "producerGroup": PRODUCERS,
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "commitOrRollback": "8",
    "fromTransactionCheck": "false",
    "msgId": "7F000001000000000000",
    "transactionId": "7F000001000000000000",
}
CHECK_TRANSACTION = {
    "topic": TOPIC,
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "msgId": "7F000001000000000000",
    "transactionId": "7F000001000000000000",
    "offsetMsgId": "7F00000100002A9F0000000000000000",
}
RESET = {
    "topic": TOPIC,
    "group": "GID-gone",
    "timestamp": "0",
    "isForce": "true",
    "queueId": "0",
    "offset": "1",
}
RESETS = {
    "timestamp": ["-1", "9000000000000"],
    "queueId": ["-1", "4", "99"],
    "offset": ["-1", "0", "3", "4", "5", "-2"],
}
NOBODY = {"consumerGroup": GROUP, "clientId": "client-nobody"}
FIRST_MESSAGE = "7F00000100002A9F0000000000000000"
MESSAGE_IDS = {"msgId": ["7F00000100002A9F", "7F00000100002A9F0000000040000000", "7F00000100002A9F0000000000000001"]}
QUERY = {
    "topic": TOPIC,
    "key": "k",
    "maxNum": "32",
    "beginTimestamp": "0",
    "endTimestamp": "9000000000000",
    "_UNIQUE_KEY_QUERY": "false",
    "indexType": "K",
}
POP = {
    "consumerGroup": "GID-pops",
    **QUEUE,
    "maxMsgNums": "2",
    "invisibleTime": "60000",
    "pollTime": "0",
    "bornTime": "0",
    "initMode": "0",
    "expType": "TAG",
    "exp": "*",
    "order": "false",
    "attemptId": "attempt",
}
POPS = {
    "topic": ["SCHEDULE_TOPIC_XXXX", "%RETRY%GID-none"],
    "queueId": ["4", "-2"],
    "maxMsgNums": ["0", "33"],
    "exp": ["||", "a b"],
    "expType": ["SQL92", "SQL"],
    "order": ["true"],
    "bornTime": ["1"],
}
HANDLE = "0 1700000000000 60000 0 0 broker-a 0 0"
ACK = {"consumerGroup": "GID-pops", **QUEUE, "extraInfo": HANDLE, "offset": "0"}
ACKS = {
    "extraInfo": ["1 2 3", "a b c d e f g h", HANDLE.replace(" 0 0 broker", " 77 0 broker"), HANDLE + " 0"],
    "queueId": ["4"],
    "offset": ["3", "4"],
}
ORDERED_ACK = {**ACK, "extraInfo": HANDLE.replace(" 0 0 broker", " 999 0 broker")}
LOOK = {"consumerGroup": "GID-looks", **QUEUE}
NOTIFICATION = {**LOOK, "pollTime": "0", "bornTime": "0", "order": "false", "attemptId": "attempt"}
PEEK = {**LOOK, "maxMsgNums": "2"}
BATCH_ACK: dict[str, Any] = {
    "brokerName": "broker-a",
    "acks": [
        {
            "c": "GID-pops",
            "t": TOPIC,
            "r": "0",
            "so": 0,
            "q": 0,
            "rq": 0,
            "pt": 1_700_000_000_000,
            "it": 60_000,
            "b": "AQ==",
        }
    ],
}
ASSIGNMENT = {
    "clientId": CLIENT,
    "consumerGroup": GROUP,
    "messageModel": "CLUSTERING",
    "strategyName": "AVG",
    "topic": TOPIC,
}
REQUEST_MODE = {"consumerGroup": "GID-made", "mode": "POP", "popShareQueueNum": 0, "topic": SENT_TOPIC}
HEARTBEAT: dict[str, Any] = {
    "clientID": "client-beat",
    "consumerDataSet": [
        {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": "GID-beat",
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [SUBSCRIPTION],
            "unitMode": False,
        }
    ],
    "heartbeatFingerprint": 0,
    "producerDataSet": [{"groupName": "PID-beat"}],
    "withoutSub": False,
}
CHECK_CLIENT = {"clientId": CLIENT, "group": GROUP, "namespace": "", "subscriptionData": SUBSCRIPTION}
LOCK = {
    "clientId": CLIENT,
    "consumerGroup": GROUP,
    "mqSet": [{"brokerName": "broker-a", "queueId": 0, "topic": TOPIC}],
    "onlyThisBroker": False,
}
GROUP_CONFIG = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupName": "GID-made",
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "subscriptionDataSet": [{"expression": "*", "expressionType": "TAG", "topic": TOPIC, "version": 1}],
    "whichBrokerWhenConsumeSlowly": 1,
}
REPLY = "REPLY_TO_CLIENT\x01client-nobody\x02CORRELATION_ID\x01c\x02"
RECALL = {
    "producerGroup": PRODUCERS,
    "topic": TOPIC,
    "recallHandle": "djEgQmFkSW5wdXQgYnJva2VyLWEgNDAwMDAwMDAwMDAwMCA3RjAwMDAwMTAwMDAwMDAwMDAwMA==",
}
BATCH = encode_batch([BatchPart(0, b"one", b"KEYS\x01k\x02"), BatchPart(0, b"two", b"")])
BATCHES = {
    "body: cut off": describe_body(BATCH[:-1]),
    "body: negative length": describe_body(BATCH[:16] + b"\xff\xff\xff\xff" + BATCH[20:]),
    "body: wrong size": describe_body(b"\0\0\0\1" + BATCH[4:]),
    "body: properties of one part": describe_body(encode_batch([BatchPart(0, b"one", b"DELAY\x011\x02")])),
    "body: part without body": describe_body(encode_batch([BatchPart(0, b"", b"")])),
}
TOO_LARGE = {"body: too large": LongBody(text="x", times=4_194_305)}

LISTED_TOPIC: dict[str, Any] = {
    "attributes": {"+message.type": "NORMAL"},
    "order": False,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "BadInputListed",
    "topicSysFlag": 0,
    "writeQueueNums": 4,
}
LISTED_TOPICS = {
    f"body: list of topics: {title}": json.dumps({"topicConfigList": [LISTED_TOPIC, {**LISTED_TOPIC, **changes}]})
    for title, changes in {
        "bad name": {"topicName": "a b"},
        "system topic": {"topicName": "SCHEDULE_TOPIC_XXXX"},
        "unknown attribute": {"topicName": "BadInputOther", "attributes": {"+gone": "x"}},
        "deleted attribute": {"topicName": "BadInputOther", "attributes": {"-message.type": ""}},
        "attribute without sign": {"topicName": "BadInputOther", "attributes": {"message.type": "FIFO"}},
        "mixed": {"topicName": "BadInputOther", "attributes": {"+message.type": "MIXED"}},
    }.items()
} | {"body: empty list of topics": '{"topicConfigList":[]}'}
LISTED_GROUPS = {
    "body: list of groups: bad name": json.dumps({"groupConfigList": [{**GROUP_CONFIG, "groupName": "a b"}]}),
    "body: empty list of groups": '{"groupConfigList":[]}',
}
USER = {"username": "bad-user"}
USER_INFO = {"password": "throw-away", "userType": "Normal", "userStatus": "enable"}
SUBJECT = {"subject": "User:bad-user"}
ACL_ENTRY = {"resource": "Topic:BadInput", "actions": ["Pub"], "sourceIps": ["127.0.0.1"], "decision": "Allow"}
ACL = {**SUBJECT, "policies": [{"policyType": "Custom", "entries": [ACL_ENTRY]}]}
ACL_ENTRIES = {
    f"body: entry: {name} {value}": json.dumps({"policies": [{"entries": [{**ACL_ENTRY, name: value}]}]})
    for name, values in {
        "resource": ["*", "Topic", "Topic:", ":T", "Topic:a*b*", "Any:T", "topic:T"],
        "actions": [["Any"], ["Fly"], [], ["pub", "Fly"]],
        "sourceIps": [["10.0.0.0/33"], ["::1/128"], [" "], ["localhost"], ["1.2.3.4/"], ["1.2.3.4/x"]],
        "decision": ["allow", "perhaps"],
    }.items()
    for value in values
} | {"body: no policies": '{"policies":[]}', "body: policy without entries": '{"policies":[{}]}'}
SUBJECTS = {"subject": ["User:", "user:bad-user", "Role:x", "User:ghost", "bad-user"]}
ENTRIES = {**QUEUE, "index": "0", "count": "2", "consumerGroup": GROUP}

BROKER_SETTINGS = {
    "body: setting that is no number": "defaultQueryMaxNum=many\n",
    "body: setting that is empty": "defaultQueryMaxNum=\n",
    "body: setting that is negative": "splitRegistrationSize=-1\n",
    "body: setting that is too large": "splitRegistrationSize=2147483648\n",
    "body: setting that is no boolean": "slaveReadEnable=perhaps\n",
    "body: setting that nobody knows": "unheardOf=1\n",
    "body: setting without effect": "autoDeleteUnusedStats=true\n",
    "body: setting of the start": "haListenPort=10912\n",
    "body: forbidden setting": "brokerConfigPath=/nowhere\n",
    "body: broken escape": "slaveReadEnable=\\u12\n",
}

BROKER = [
    Sample(Code.SEND_MESSAGE, LONG_SEND, b"body", values=SENDS),
    Sample(Code.SEND_MESSAGE_V2, LETTER_SEND, b"body", TOO_LARGE, LETTER_SENDS),
    Sample(Code.SEND_BATCH_MESSAGE, {**LETTER_SEND, "m": "true"}, BATCH, TOO_LARGE | BATCHES, LETTER_SENDS),
    Sample(Code.CONSUMER_SEND_MSG_BACK, SEND_BACK, values={"delayLevel": ["0", "19"], "offset": ["1", "1073741824"]}),
    Sample(Code.END_TRANSACTION, END_TRANSACTION),
    Sample(Code.CHECK_TRANSACTION_STATE, CHECK_TRANSACTION),
    Sample(Code.RESUME_CHECK_HALF_MESSAGE, {"topic": TOPIC, "msgId": "7F00000100002A9F0000000000000000"}),
    Sample(Code.SEND_REPLY_MESSAGE, {**LONG_SEND, "properties": REPLY}, b"body"),
    Sample(Code.SEND_REPLY_MESSAGE_V2, {**LETTER_SEND, "i": REPLY}, b"body"),
    Sample(Code.RECALL_MESSAGE, RECALL),
    Sample(Code.PULL_MESSAGE, PULL, values=PULLS),
    Sample(Code.LITE_PULL_MESSAGE, PULL),
    Sample(Code.QUERY_MESSAGE, QUERY),
    Sample(Code.VIEW_MESSAGE_BY_ID, {"offset": "0", "topic": TOPIC}),
    Sample(Code.QUERY_CONSUMER_OFFSET, {"consumerGroup": GROUP, **QUEUE, "setZeroIfNotFound": "true"}),
    Sample(Code.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "GID-moving", **QUEUE, "commitOffset": "2"}),
    Sample(Code.SEARCH_OFFSET_BY_TIMESTAMP, {**QUEUE, "timestamp": "0", "boundaryType": "LOWER"}),
    Sample(Code.GET_MAX_OFFSET, {**QUEUE, "committed": "true"}),
    Sample(Code.GET_MIN_OFFSET, QUEUE),
    Sample(Code.GET_EARLIEST_MSG_STORETIME, QUEUE),
    Sample(Code.HEART_BEAT, {}, HEARTBEAT),
    Sample(
        Code.UNREGISTER_CLIENT, {"clientID": "client-gone", "producerGroup": PRODUCERS, "consumerGroup": "GID-gone"}
    ),
    Sample(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}),
    Sample(Code.CHECK_CLIENT_CONFIG, {}, CHECK_CLIENT),
    Sample(Code.LOCK_BATCH_MQ, {}, LOCK),
    Sample(Code.UNLOCK_BATCH_MQ, {}, LOCK),
    Sample(Code.UPDATE_AND_CREATE_TOPIC, CREATE_TOPIC, values={"topic": TOPICS, "attributes": ATTRIBUTES}),
    Sample(Code.GET_TOPIC_CONFIG, {"topic": TOPIC}),
    Sample(Code.GET_ALL_TOPIC_CONFIG, {"topicSeq": "0", "maxTopicNum": "100", "dataVersion": "{}"}),
    Sample(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, GROUP_CONFIG),
    Sample(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": GROUP}),
    Sample(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": "0", "maxGroupNum": "100", "dataVersion": "{}"}),
    Sample(Code.GET_TOPIC_STATS_INFO, {"topic": TOPIC}),
    Sample(Code.GET_CONSUME_STATS, {"consumerGroup": GROUP, "topic": TOPIC}),
    Sample(Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    Sample(Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": TOPIC}),
    Sample(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUP}),
    Sample(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": PRODUCERS}),
    Sample(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
    Sample(Code.GET_BROKER_RUNTIME_INFO),
    Sample(Code.GET_CONSUMER_RUNNING_INFO, {**NOBODY, "jstackEnable": "true"}),
    Sample(Code.CONSUME_MESSAGE_DIRECTLY, {**NOBODY, "msgId": FIRST_MESSAGE, "topic": TOPIC}, values=MESSAGE_IDS),
    Sample(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": TOPIC, "group": "GID-none", "clientAddr": CLIENT}),
    Sample(Code.GET_ALL_PRODUCER_INFO),
    Sample(Code.QUERY_TOPICS_BY_CONSUMER, {"group": GROUP}),
    Sample(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": GROUP, "topic": TOPIC}),
    Sample(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "GID-made", "topic": "BadInputMade", "readable": "false"}),
    Sample(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET, values=RESETS),
    Sample(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, {"topicConfigList": [LISTED_TOPIC]}, LISTED_TOPICS),
    Sample(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, {"groupConfigList": [GROUP_CONFIG]}, LISTED_GROUPS),
    Sample(Code.GET_ALL_CONSUMER_OFFSET),
    Sample(Code.GET_ALL_DELAY_OFFSET),
    Sample(Code.QUERY_CONSUME_TIME_SPAN, {"topic": TOPIC, "group": GROUP}),
    Sample(Code.QUERY_CORRECTION_OFFSET, {"filterGroups": "GID-none", "compareGroup": GROUP, "topic": TOPIC}),
    Sample(Code.CLONE_GROUP_OFFSET, {"srcGroup": GROUP, "destGroup": "GID-gone", "topic": TOPIC, "offline": "false"}),
    Sample(
        Code.VIEW_BROKER_STATS_DATA,
        {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC},
        values={"statsName": ["GROUP_GET_NUMS", "UNHEARD_OF"], "statsKey": ["nobody", "BadInput@0"]},
    ),
    Sample(Code.QUERY_CONSUME_QUEUE, ENTRIES, values={"index": ["3"], "queueId": ["9"], "consumerGroup": ["GID-none"]}),
    Sample(Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, {"topic": TOPIC, "checkStoreTime": "0"}),
    Sample(Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": "topics;subscriptionGroups"}),
    Sample(Code.NOTIFY_MIN_BROKER_ID_CHANGE, {"minBrokerId": "0", "brokerName": "broker-a"}),
    Sample(Code.GET_TIMER_CHECK_POINT),
    Sample(Code.GET_TIMER_METRICS),
    Sample(Code.GET_ALL_MESSAGE_REQUEST_MODE),
    Sample(Code.EXCHANGE_BROKER_HA_INFO, {"masterFlushOffset": "0", "masterAddress": HOST}),
    Sample(Code.GET_BROKER_HA_STATUS),
    Sample(Code.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "0"}),
    Sample(Code.GET_BROKER_EPOCH_CACHE),
    Sample(Code.NOTIFY_BROKER_ROLE_CHANGED),
    Sample(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, {}, "GID-bad=100\n"),
    Sample(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, {}, "GID-bad"),
    Sample(Code.GET_COLD_DATA_FLOW_CTR_INFO),
    Sample(Code.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": "0"}, values={"READ_AHEAD_MODE": ["1", "2"]}),
    Sample(Code.SWITCH_TIMER_ENGINE, {"E_T": "R"}, values={"E_T": ["X"]}),
    Sample(Code.AUTH_CREATE_USER, {"username": "bad-made"}, USER_INFO),
    Sample(Code.AUTH_UPDATE_USER, USER, USER_INFO),
    Sample(Code.AUTH_GET_USER, USER),
    Sample(Code.AUTH_LIST_USER, {"filter": "bad"}),
    Sample(Code.AUTH_CREATE_ACL, SUBJECT, ACL, ACL_ENTRIES, SUBJECTS),
    Sample(Code.AUTH_UPDATE_ACL, SUBJECT, ACL, ACL_ENTRIES, SUBJECTS),
    Sample(Code.AUTH_GET_ACL, SUBJECT, values=SUBJECTS),
    Sample(Code.AUTH_LIST_ACL, {"subjectFilter": "bad", "resourceFilter": "Topic"}),
    Sample(Code.AUTH_DELETE_ACL, {**SUBJECT, "policyType": "Custom", "resource": "Topic:BadInput"}, values=SUBJECTS),
    Sample(Code.AUTH_DELETE_USER, {"username": "bad-made"}, values={"username": ["ghost"]}),
    Sample(Code.POP_MESSAGE, POP, values=POPS),
    Sample(Code.ACK_MESSAGE, ACK, values=ACKS),
    Sample(Code.CHANGE_MESSAGE_INVISIBLETIME, {**ORDERED_ACK, "invisibleTime": "1000"}, values=ACKS),
    Sample(Code.BATCH_ACK_MESSAGE, {}, BATCH_ACK),
    Sample(Code.NOTIFICATION, NOTIFICATION),
    Sample(Code.POLLING_INFO, LOOK),
    Sample(Code.PEEK_MESSAGE, PEEK, values={"maxMsgNums": ["0", "33"]}),
    Sample(Code.QUERY_ASSIGNMENT, {}, ASSIGNMENT),
    Sample(Code.SET_MESSAGE_REQUEST_MODE, {}, REQUEST_MODE),
    Sample(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "GID-made", "cleanOffset": "true", "removeOffset": "false"}),
    Sample(Code.DELETE_TOPIC_IN_BROKER, {"topic": "BadInputMade"}, values={"topic": [*TOPICS, " "]}),
    Sample(Code.UPDATE_BROKER_CONFIG, {}, "maxMsgsNumBatch=64\n", BROKER_SETTINGS),
    Sample(Code.GET_BROKER_CONFIG),
    Sample(Code.CLEAN_EXPIRED_CONSUMEQUEUE),
    Sample(Code.CLEAN_UNUSED_TOPIC),
    Sample(Code.DELETE_EXPIRED_COMMITLOG),
]

IDENTITY = {"brokerName": "broker-z", "brokerAddr": HOST, "clusterName": "cluster-z", "brokerId": "0"}
REGISTERED: dict[str, Any] = {
    "attributes": {},
    "order": False,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "BadTopic",
    "topicSysFlag": 0,
    "writeQueueNums": 4,
}
REGISTRATION: dict[str, Any] = {
    "filterServerList": [],
    "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000},
        "topicConfigTable": {"BadTopic": REGISTERED, "BadSecond": {**REGISTERED, "topicName": "BadSecond"}},
    },
}
ROUTE: dict[str, Any] = {
    "brokerDatas": [{"brokerAddrs": {"0": HOST}, "brokerName": "broker-z", "cluster": "cluster-z"}],
    "filterServerTable": {},
    "queueDatas": [{"brokerName": "broker-z", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}],
}
KEY = {"namespace": "BAD", "key": "k"}
REGISTER = {
    **IDENTITY,
    "haServerAddr": "192.0.2.7:10912",
    "heartbeatTimeoutMillis": "120000",
    "enableActingMaster": "false",
    "compressed": "false",
    "bodyCrc32": "0",
}
ALIVE = {
    **IDENTITY,
    "epoch": "0",
    "maxOffset": "0",
    "confirmOffset": "0",
    "heartbeatTimeoutMills": "120000",
    "electionPriority": "0",
}
SETTINGS = {
    "body: setting that is no number": "scanNotActiveBrokerInterval=never\n",
    "body: setting that is empty": "scanNotActiveBrokerInterval=\n",
    "body: setting that is negative": "unRegisterBrokerQueueCapacity=-1\n",
    "body: setting that is too large": "unRegisterBrokerQueueCapacity=2147483648\n",
    "body: setting that is no boolean": "orderMessageEnable=perhaps\n",
    "body: setting that nobody knows": "unheardOf=1\n",
    "body: forbidden setting": "kvConfigPath=/nowhere\n",
    "body: broken escape": "orderMessageEnable=\\u12\n",
}

NAME_SERVER = [
    Sample(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "BadTopic", "acceptStandardJsonOnly": "true"}),
    Sample(Code.GET_BROKER_CLUSTER_INFO),
    Sample(Code.GET_BROKER_MEMBER_GROUP, {"clusterName": "cluster-z", "brokerName": "broker-z"}),
    Sample(Code.PUT_KV_CONFIG, {**KEY, "value": "v"}),
    Sample(Code.GET_KV_CONFIG, KEY),
    Sample(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "BAD"}),
    Sample(Code.DELETE_KV_CONFIG, KEY),
    Sample(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
    Sample(Code.GET_TOPICS_BY_CLUSTER, {"cluster": "cluster-z"}),
    Sample(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS),
    Sample(Code.GET_UNIT_TOPIC_LIST),
    Sample(Code.GET_HAS_UNIT_SUB_TOPIC_LIST),
    Sample(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
    Sample(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-z"}),
    Sample(Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-z"}),
    Sample(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "BadMade"}, ROUTE),
    Sample(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "BadMade", "clusterName": "cluster-z"}),
    Sample(Code.UPDATE_NAMESRV_CONFIG, {}, "orderMessageEnable=true\n", SETTINGS),
    Sample(Code.GET_NAMESRV_CONFIG),
    Sample(Code.BROKER_HEARTBEAT, ALIVE),
    Sample(Code.QUERY_DATA_VERSION, IDENTITY, REGISTRATION["topicConfigSerializeWrapper"]["dataVersion"]),
    Sample(Code.REGISTER_BROKER, REGISTER, REGISTRATION),
    Sample(Code.UNREGISTER_BROKER, IDENTITY),
]


def mistyped_headers(code: int) -> list[Case]:
    """Return requests whose table of fields is none."""
    tables: dict[str, Any] = {"list": [], "text": "x", "number": 5, "boolean": True, "table of nothing": {"": ""}}
    return [Case(code=code, title=f"fields: {title}", fields=table) for title, table in tables.items()]


def broker_cases() -> list[Case]:
    """Return all requests to the broker."""
    return [case for sample in BROKER for case in vary(sample)] + mistyped_headers(Code.GET_MIN_OFFSET)


def nameserver_cases() -> list[Case]:
    """Return all requests to the name server."""
    cases = [case for sample in NAME_SERVER for case in vary(sample)]
    return cases + mistyped_headers(Code.GET_ROUTEINFO_BY_TOPIC)


async def prepare_broker(caller: Caller) -> None:
    """Store messages, create groups, commit an offset and register a client on this connection."""
    for group in (GROUP, "GID-moving", "GID-gone"):
        await succeed(caller, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {**GROUP_CONFIG, "groupName": group})
    for topic in (TOPIC, SENT_TOPIC):
        await succeed(caller, Code.UPDATE_AND_CREATE_TOPIC, {**CREATE_TOPIC, "topic": topic})
    for number in range(MESSAGES):
        header = send_header(TOPIC, properties="KEYS\x01k\x02TAGS\x01a\x02")
        assert (await caller.ask(Code.SEND_MESSAGE_V2, header, b"%d" % number)).code == 0
    await succeed(caller, Code.UPDATE_CONSUMER_OFFSET, {"consumerGroup": GROUP, **QUEUE, "commitOffset": "1"})
    await succeed(caller, Code.AUTH_CREATE_USER, USER, USER_INFO)
    await succeed(caller, Code.AUTH_CREATE_ACL, SUBJECT, ACL)
    assert (await caller.ask(Code.HEART_BEAT, None, heartbeat_body(CLIENT, GROUP, {TOPIC: "*"}))).code == 0
    while (await caller.ask(Code.QUERY_MESSAGE, QUERY)).code != 0:
        pass  # the index follows the log


async def prepare_nameserver(caller: Caller) -> None:
    """Register a broker over this connection."""
    await succeed(caller, Code.REGISTER_BROKER, REGISTER, REGISTRATION)


async def succeed(caller: Caller, code: int, fields: dict[str, str], body: Any = b"") -> None:
    """Ask what must be answered 0."""
    answer = await caller.ask(code, fields, encode_body(body))
    assert answer.code == 0, f"{code}: {answer.remark}"
