"""What each command of mqadmin is tried with, in this order, on one broker with a topic, a group and its members.

Words in braces are replaced: ``{n}`` name server, ``{b}`` broker, ``{c}`` its cluster, ``{t}`` a topic of two queues,
``{g}`` a group that is online, ``{p}`` its producers, ``{client}`` a member, ``{id}`` an offset id, ``{key}`` a key,
``{unique}`` a unique key, ``{trace}`` the topic of traces, ``{dir}`` a directory.
"""

from typing import NamedTuple


class Trial(NamedTuple):
    """The arguments behind ``-n``, and a pattern that stands in what is printed when the command works.

    With ``note`` and no pattern it is not run, and the note tells why.
    """

    arguments: str = ""
    shows: str = ""
    note: str = ""


_UNTIL_STOPPED = "works until it is stopped: tried alone, not in the run of all commands"
_LOCAL = "works on local files of RocksDB, asks no server"
_USER = "-u alice"
_CONTROLLER = "-a {b}"

TRIALS: dict[str, Trial] = {
    "updateTopic": Trial("-b {b} -t {t}-made -r 2 -w 2", "create topic to .* success"),
    "updateTopicList": Trial("-b {b} -f {dir}/topics.json", "submit batch of topic config to .* success"),
    "updateTopicPerm": Trial("-b {b} -t {t}-made -p 4", "update topic perm from 6 to 4"),
    "topicRoute": Trial("-t {t}", '"queueDatas"'),
    "topicStatus": Trial("-t {t}", r"broker-a +0 +0 +[1-9]"),
    "topicClusterList": Trial("-t {t}", "DefaultCluster"),
    "topicList": Trial("-c", "DefaultCluster +{t}"),
    "updateSubGroup": Trial("-b {b} -g {g}-made -s true", "create subscription group to .* success"),
    "updateSubGroupList": Trial("-b {b} -f {dir}/groups.json", "submit batch of group config to .* success"),
    "setConsumeMode": Trial("-b {b} -t {t} -g {g} -m PULL", "set consume mode to .* success"),
    "updateBrokerConfig": Trial("-b {b} -k maxMsgsNumBatch -v 64", "update broker config success"),
    "getBrokerConfig": Trial("-b {b}", "maxMsgsNumBatch += +64"),
    "addBroker": Trial("-c {b} -b {dir}/broker.conf", "add broker to .* success"),
    "removeBroker": Trial("-c {b} -b DefaultCluster:broker-a:1", "remove broker from .* success"),
    "resetMasterFlushOffset": Trial("-b {b} -o 0", "reset master flush offset to 0 success"),
    "brokerStatus": Trial("-b {b}", "putMessageTimesTotal"),
    "queryMsgById": Trial("-t {t} -i {id}", r"OffsetID: +{id}"),
    "queryMsgByKey": Trial("-t {t} -k {key}", "{unique}"),
    "queryMsgByUniqueKey": Trial("-t {t} -i {unique}", "UNIQ_KEY={unique}"),
    "queryMsgByOffset": Trial("-t {t} -b broker-a -i 0 -o 0", "Message Body"),
    "queryMsgTraceById": Trial("-i {unique} -t {trace}", "#Type|Pub"),
    "printMsg": Trial("-t {t} -d true", "BODY: first"),
    "printMsgByQueue": Trial("-t {t} -a broker-a -i 0 -p true -d true", "BODY: first"),
    "sendMsgStatus": Trial("-b broker-a -s 128 -c 2", "SEND_OK"),
    "brokerConsumeStats": Trial("-b {b}", r"Diff Total: \d+"),
    "producerConnection": Trial("-g {p} -t {t}", "127.0.0.1"),
    "consumerConnection": Trial("-g {g}", "{client}"),
    "consumerProgress": Trial("-g {g}", r"Consume TPS: [\d.]+\nConsume Diff Total: \d+"),
    "consumerStatus": Trial("-g {g} -i {client}", "Consumer Properties"),
    "cloneGroupOffset": Trial("-s {g} -d {g}-made -t {t} -o true", "clone group offset success"),
    "producer": Trial("-b {b}", "producer group.*{p}"),
    "clusterList": Trial("", r"DefaultCluster +broker-a +0 +{b} +V5_\d_\d +\d+\.\d+"),
    "updateKvConfig": Trial("-s NS -k key -v value", "create or update kv config to namespace success"),
    "deleteKvConfig": Trial("-s NS -k key", "delete kv config from namespace success"),
    "wipeWritePerm": Trial("-b broker-a", r"wipe write perm of broker\[broker-a\].*OK, \d+"),
    "addWritePerm": Trial("-b broker-a", r"add write perm of broker\[broker-a\].*OK, \d+"),
    "resetOffsetByTime": Trial("-g {g} -t {t} -s now", r"broker-a +0 +\d+"),
    "skipAccumulatedMessage": Trial("-g {g} -t {t}", r"broker-a +0 +\d+"),
    "updateOrderConf": Trial("-t {t} -m put -v broker-a:2", "update orderConf success"),
    "cleanExpiredCQ": Trial("-b {b}", "success"),
    "deleteExpiredCommitLog": Trial("-b {b}", "success"),
    "cleanUnusedTopic": Trial("-b {b}", "success"),
    "startMonitoring": Trial(note=_UNTIL_STOPPED),
    "statsAll": Trial("-t {t}", r"{t} +{g} +\d+ +"),
    "allocateMQ": Trial("-t {t} -i 10.0.0.1,10.0.0.2", '"10.0.0.1":'),
    "checkMsgSendRT": Trial("-t {t} -a 3 -s 16", "Avg RT"),
    "clusterRT": Trial(note=_UNTIL_STOPPED),
    "getNamesrvConfig": Trial("", "orderMessageEnable"),
    "updateNamesrvConfig": Trial("-k orderMessageEnable -v false", "update name server config success"),
    "getConsumerConfig": Trial("-g {g}", "consumeEnable += +true"),
    "queryCq": Trial("-t {t} -q 0 -i 0 -c 2 -b {b}", "idx: 0"),
    "sendMessage": Trial("-t {t} -p later -k other", "SEND_OK"),
    "consumeMessage": Trial("-t {t} -b broker-a -i 0 -o 0 -c 1", "Consume ok"),
    "updateStaticTopic": Trial("-c {c} -t {t}-static -qn 2", "The new mapping data is written to file"),
    "remappingStaticTopic": Trial("-c {c} -t {t}-static", "The old mapping data"),
    "exportMetadata": Trial("-c {c} -f {dir}/metadata", "export .* success"),
    "exportConfigs": Trial("-c {c} -f {dir}/configs", "export .* success"),
    "exportMetrics": Trial("-c {c} -f {dir}/metrics", "export .* success"),
    "exportMetadataInRocksDB": Trial(note=_LOCAL),
    "exportPopRecord": Trial("-b {b} -d true", "success|finish"),
    "haStatus": Trial("-b {b}", "InSyncSlaveNums: 0|SlaveNum"),
    "getSyncStateSet": Trial(f"{_CONTROLLER} -b broker-a", "#SyncStateSet"),
    "getBrokerEpoch": Trial("-b broker-a", "#Epoch"),
    "getControllerMetaData": Trial(_CONTROLLER, "#ControllerGroup"),
    "getControllerConfig": Trial(_CONTROLLER, "enableElect"),
    "updateControllerConfig": Trial(f"{_CONTROLLER} -k enableElectUncleanMaster -v false", "update controller config"),
    "electMaster": Trial(f"{_CONTROLLER} -b 1 -bn broker-a -c {{c}}", "#ClusterName"),
    "cleanBrokerMetadata": Trial(f"{_CONTROLLER} -bn broker-a -c {{c}}", "clear broker .* success"),
    "dumpCompactionLog": Trial(note="works on a local file, asks no server"),
    "getColdDataFlowCtrInfo": Trial("-b {b}", "configTable"),
    "updateColdDataFlowCtrGroupConfig": Trial("-b {b} -g {g} -v 1000", "updateColdDataFlowCtrGroupConfig|success"),
    "removeColdDataFlowCtrGroupConfig": Trial("-b {b} -g {g}", "success"),
    "setCommitLogReadAheadMode": Trial("-b {b} -m 0", "set commitLog readAhead mode|success"),
    "createUser": Trial(f"-b {{b}} {_USER} -p secret", "create user to .* success"),
    "updateUser": Trial(f"-b {{b}} {_USER} -p other", "update user to .* success"),
    "getUser": Trial(f"-b {{b}} {_USER}", "alice"),
    "listUser": Trial("-b {b}", "alice"),
    "copyUser": Trial(f"-f {{b}} -t {{b}} {_USER}", "copy user of .* success"),
    "createAcl": Trial("-b {b} -s User:alice -r Topic:{t} -a Pub -d Allow", "create acl to .* success"),
    "updateAcl": Trial("-b {b} -s User:alice -r Topic:{t} -a Sub -d Allow", "update acl to .* success"),
    "getAcl": Trial("-b {b} -s User:alice", "User:alice"),
    "listAcl": Trial("-b {b}", "User:alice"),
    "copyAcl": Trial("-f {b} -t {b} -s User:alice", "copy acl of .* success"),
    "deleteAcl": Trial("-b {b} -s User:alice", "delete acl to .* success"),
    "deleteUser": Trial(f"-b {{b}} {_USER}", "delete user to .* success"),
    "rocksDBConfigToJson": Trial("-c {c} -t topics", "(?i)success|finish|done"),
    "checkRocksdbCqWriteProgress": Trial("-c {c} -t {t}", "checkStatus|checkResult|in progress|check"),
    "switchTimerEngine": Trial("-b {b} -e F", "success"),
    "deleteSubGroup": Trial(
        "-b {b} -g {g}-made -r true", r"delete subscription group \[{g}-made\] from broker .* success"
    ),
    "deleteTopic": Trial("-c {c} -t {t}-made", r"delete topic \[{t}-made\] from NameServer success"),
}
