"""Bad requests that are answered otherwise than by the official servers, and why that is better."""

from typing import Final

from badinput.comparing import Deviation

_MISSING: Final = "(?:missing|null|missing, binary)"

_NUMBERS: Final = (
    "(?:queueId|maxMsgNums|invisibleTime|pollTime|bornTime|initMode|offset): "
    "(?:missing|null|empty|blank|text|fraction|blank behind|hexadecimal|above int|above long|boolean|list)"
)

_NO_TABLE: Final = Deviation(
    "A request whose fields are no table is told so, and its connection goes on; Java closes it.",
    "(?:31|105) fields: .*",
    1,
    "the header fields are no JSON object",
)

_ENTRY: Final = r"300[67] body: \$\.policies\[0\]\.entries"

BROKER: Final = [
    _NO_TABLE,
    Deviation(
        "Names of users end after 255 characters: they stand in logs and in the words of refusals.",
        "3001 username: (?:256 long|huge)",
        16,
        r"the username has \d+ characters, the limit is 255",
    ),
    Deviation("Nobody has a name that is too long.", "3002 username: (?:256 long|huge)", 16, "The user is not exist"),
    Deviation(
        "Everything is named *; Java also reads Any: with any name as that.",
        "300[67] body: entry: resource Any:T",
        16,
        "The resource is null.",
    ),
    Deviation(
        "An entry without a resource is refused as one with a wrong one; Java fails on what else is missing.",
        rf"{_ENTRY}(?: object|\[0\] empty)",
        16,
        "The resource is null.",
    ),
    Deviation(
        "An entry of a list that is null is none; Java fails on it.",
        rf"{_ENTRY}(?: of|\[0\]) null",
        16,
        "The policies is empty.",
    ),
    Deviation(
        "Actions that are missing are none; Java fails on them.",
        rf"{_ENTRY}\[0\]\.actions (?:missing|null|object)",
        16,
        "The actions is empty.",
    ),
    Deviation(
        "Addresses that are none are refused; Java makes an entry for all addresses of an object, or of a number.",
        rf"{_ENTRY}\[0\]\.sourceIps (?:number|text)",
        1,
        "JSON is not a AclInfo: .*",
    ),
    Deviation(
        "Addresses that are none are refused; Java makes an entry for all addresses of an object, or of a number.",
        rf"{_ENTRY}\[0\]\.sourceIps object",
        16,
        "The source ip is invalid.",
    ),
    Deviation(
        "A field that is missing or no number is named; Java takes it for 0 or null, or fails on it.",
        f"2000(?:50|51|52|53|54|55) (?:all fields (?:empty|text)|(?:consumerGroup|extraInfo): {_MISSING}|{_NUMBERS})",
        1,
        "the custom field <.*> is .*",
    ),
    Deviation(
        "Whoever wants fewer than no messages gets none; Java fails.",
        "200050 maxMsgNums: (?:negative|least int)",
        210,
        "NO_MESSAGE_IN_QUEUE",
    ),
    Deviation(
        "Whoever wants fewer than no messages gets none; Java fails.",
        "200052 maxMsgNums: (?:negative|least int)",
        19,
        "NO_MESSAGE_IN_QUEUE",
    ),
    Deviation(
        "A subscription of which no tag is left is refused; Java lets it match nothing.",
        "200050 exp: blank",
        23,
        "parse the consumer's subscription failed",
    ),
    Deviation(
        "An entry of a list that is null is none; Java fails on it.",
        r"200151 body: \$\.acks(?: of|\[0\]) null",
        208,
    ),
    Deviation(
        "An acknowledgement of no topic has no effect; Java fails on it.",
        r"200151 body: \$\.acks\[0\]\.t (?:missing|null)",
        0,
    ),
    Deviation(
        "Bits that are no base64 are refused.",
        r"200151 body: \$\.acks\[0\]\.b number",
        1,
        "an acknowledgement has the bits '12', which are no base64",
    ),
    Deviation(
        "A way to get messages that is none of the two is pulling; Java takes other texts so, and fails on the rest.",
        r"401 body: \$\.mode (?:number|boolean|list|object)",
        0,
    ),
    Deviation(
        "A group that was given the offsets of another one goes on there; Java minds an older reset (314, 200050).",
        "200052 consumerGroup: number",
        0,
        "FOUND",
    ),
    Deviation(
        "A message without a body is its sender's mistake (13); Java fails (1), and its clients try every broker.",
        "(?:10|310|320|324|325) empty body",
        13,
        "the message has no body",
    ),
    Deviation(
        "A subscription of which no tag is left is refused; Java lets it match nothing, for ever.",
        "(?:11|361) subscription: blank",
        23,
        "parse the consumer's subscription failed",
    ),
    Deviation(
        "A topic with fewer than no queues is refused; Java makes it, and its clients fail on the route.",
        r"(?:17 |18 body: \$\.topicConfigList\[0\]\.)(?:read|write)QueueNums:? (?:negative|least int)",
        29,
        r"queue numbers are -?\d+ and -?\d+, the least is 0",
    ),
    Deviation(
        "An entry of a list or a table that is null is none; Java fails on it.",
        r"(?:18|225) body: .*(?:of null|\[0\] null|\.\+message\.type null)",
        0,
    ),
    Deviation(
        "A topic with a kind of filter that does not exist is refused; Java saves it without one.",
        r"18 body: .*\.topicFilterType .*",
        1,
        r"topicFilterType = \[.*\] value invalid",
    ),
    Deviation(
        "Offsets are given to groups that are there, or may be made; Java keeps them under any name.",
        "314 (?:all fields|destGroup:) .*",
        26,
        "(?s)Group .* not exist!",
    ),
    Deviation(
        "A group that gets offsets is named; Java keeps them under none.",
        f"314 destGroup: {_MISSING}",
        1,
        "the custom field <destGroup> is null",
    ),
    Deviation(
        "A queue without messages is none; Java makes one when a client asks for its ends.",
        "321 .*",
        1,
        "(?s).* is not exist!",
    ),
    Deviation(
        "What is told of roles changes nothing here, so nothing of it is read.",
        "(?:905 .*|1008 body: .*)",
        0,
    ),
    Deviation(
        "An empty table of fields is none.",
        "2004 (?:empty fields|READ_AHEAD_MODE: (?:missing|null))",
        1,
        "set commitlog readahead mode param error",
    ),
    Deviation(
        "An empty table of fields is none.",
        "5001 (?:empty fields|E_T: (?:missing|null))",
        29,
        "param error, .* is null",
    ),
    Deviation(
        "All topics or groups are told at once, whatever part is asked for; Java's paging fails on its own arguments.",
        "(?:21|201) .*",
        0,
    ),
    Deviation(
        "Several fields are wrong: the first that cannot be read is named; Java gets to the group first.",
        "36 all fields (?:empty|text)",
        1,
        "the custom field <offset> is .*",
    ),
    Deviation(
        "A client without an id is refused; Java takes it in, and then fails at each heartbeat of its connection.",
        r"34 body: (?:empty object|\$ empty|\$\.clientID (?:missing|null))",
        1,
        "JSON is not a HeartbeatData: Object missing required field `clientID`",
    ),
    Deviation(
        "Null and absent are the same everywhere in JSON (remoting.md §5.1); Java fails on some lists and entries.",
        r"(?:34|41|42) body: \$\S* (?:null|of null)",
        0,
    ),
    Deviation(
        "Tag codes that are no numbers are refused as in other places; Java takes an object for one, and cuts a long.",
        r"(?:34|46) body: \$\S*codeSet(?: object|\[0\] above long)",
        1,
        "JSON is not a .*codeSet.*",
    ),
    Deviation(
        "A queue is locked by a client with an id or not at all; Java gives it to nobody, for a minute.",
        r"(?:41|42) body: (?:empty object|\$ empty|\$\.clientId (?:missing|null))",
        1,
        "JSON is not a LockBatchBody: Object missing required field `clientId`",
    ),
    Deviation(
        "A queue has a topic and a broker, or there is nothing to be locked.",
        r"(?:41|42) body: \$\.mqSet(?: object|\[0\] empty|\[0\]\.(?:topic|brokerName) (?:missing|null))",
        1,
        r"JSON is not a LockBatchBody: Expected `array`, got `object` - at `\$\.mqSet\[0\]`",
    ),
    Deviation(
        "Only a half message is put back to be checked; Java makes one of any message that it finds.",
        "323 (?:good.*|one more field|topic: .*|.*body.*)",
        1,
        "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.",
    ),
    Deviation(
        "A value that cannot be used is refused, and nothing of the request changes; Java leaves it out in silence.",
        "25 body: setting that is (?:no number|empty|negative|no boolean)",
        1,
        r"\w+ is \S+, expected .*",
    ),
    Deviation(
        "What is read at the start only is refused; Java says yes, and goes on as before.",
        "25 body: setting of the start",
        1,
        "haListenPort is read at the start only: .*",
    ),
    Deviation(
        "A message is found at its first byte; Java hands out whatever begins where it is told.",
        "309 msgId: '7F00000100002A9F0000000000000001'",
        1,
        "can not find message by the offset, 1",
    ),
    Deviation(
        "A name that is kept in a table is bounded; Java keeps any.",
        "353 (?:group|topic): huge",
        29,
        "the name has 33000 characters, the limit is 1024",
    ),
    Deviation(
        "A reply whose header cannot be read is refused before its receiver is looked for; Java looks first.",
        "(?:324 (?:topic|sysFlag)|325 [bf]): .*",
        1,
        "the custom field <(?:topic|sysFlag|b|f)> is .*",
    ),
]

NAME_SERVER: Final = [
    _NO_TABLE,
    Deviation(
        "A key without a value is refused; Java stores a null, and finds nothing there later.",
        f"100 value: {_MISSING}",
        1,
        "the custom field <value> is null",
    ),
    Deviation(
        "A broker says who and where it is, or is not registered; Java registers null, and tells it to clients.",
        f"103 (?:brokerName|brokerAddr|clusterName|haServerAddr): {_MISSING}",
        1,
        "the custom field <(?:brokerName|brokerAddr|clusterName|haServerAddr)> is null",
    ),
    Deviation(
        "The first byte tells whether a registration is compressed: brokers say it wrongly (remoting.md §4.2).",
        "103 compressed: (?:capitals|unquoted)",
        0,
    ),
    Deviation(
        "Null and absent are the same everywhere in JSON (remoting.md §5.1): a topic that is null is passed over.",
        r"103 body: \$\S*topicConfigTable\.Bad(?:Topic|Second) null",
        0,
    ),
    Deviation(
        "The counter of a data version is a long, as in Java; only its JSON reader takes it for an int.",
        r"(?:103|322) body: \$\S*counter above int",
        0,
    ),
    Deviation(
        "The kind of a topic's filter is of no use to a name server, and is not looked at.",
        r"103 body: \$\S*topicFilterType (?:number|boolean|list|object)",
        0,
    ),
    Deviation(
        "Filter servers are a list of texts; Java takes a number for one here, and refuses it elsewhere.",
        r"103 body: \$\.filterServerList number",
        1,
        "Failed to decode RegisterBrokerBody: JSON is not a .*filterServerList`",
    ),
    Deviation(
        "A topic that is registered has a name; Java registers null.",
        f"217 (?:topic: {_MISSING}|no fields.*|empty fields|fields nobody knows|fields in capitals)",
        1,
        "the custom field <topic> is null",
    ),
    Deviation(
        "A setting that cannot be read is told, and none is changed; Java says that all is well, and leaves it.",
        "318 body: setting that is (?:no number|empty|no boolean)",
        1,
        r"\w+ is '\w*', expected .*",
    ),
]
