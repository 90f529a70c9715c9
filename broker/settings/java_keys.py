"""What happens to settings that rocketlet does not use: refused, or warned about.

``_REFUSED`` lists the keys whose neglect would lose data, split a role or open access, with the values that ask for
nothing and are therefore let through, and what would be needed. The names of all settings are those that a Java broker
reads from its file: the setters of RocketMQ's ``BrokerConfig``, ``BrokerIdentity``, ``MessageStoreConfig``,
``NettyServerConfig``, ``NettyClientConfig`` and ``AuthConfig`` and those of ``TlsSystemConfig`` and ``MixAll``, up to
5.4.0. A name that stands here and in no part of rocketlet is known but unused; a name that stands nowhere is a
misspelling.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from ...common.errors import ConfigError

_NAMES = """
    accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio accountStatsEnable accountStatsPrintZeroValues
    ackMessageThreadPoolNums ackThreadPoolQueueCapacity aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond
    aclEnable adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity allAckInSyncStateSet
    allowRecallWhenBrokerNotWriteable appendAckAsync appendCkAsync appendTopicForTimerDeleteKey asyncLearner
    asyncSendEnable authConfigPath authenticationEnabled authenticationMetadataProvider authenticationProvider
    authenticationStrategy authenticationWhitelist authorizationEnabled authorizationMetadataProvider
    authorizationProvider authorizationStrategy authorizationWhitelist autoCreateSubscriptionGroup
    autoCreateTopicEnable autoDeleteUnusedStats autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums
    bindAddress bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore
    broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond brokerClusterName brokerConfigPath
    brokerElectionPriority brokerFastFailureEnable brokerHeartbeatInterval brokerIP1 brokerIP2 brokerId brokerName
    brokerNotActiveTimeoutMillis brokerPermission brokerRole brokerTopicEnable cgColdReadThreshold
    channelExpiredTimeout channelNotActiveInterval checkCRCOnRecover checkSyncStateSetPeriod cleanFileForciblyEnable
    cleanOfflineBrokerInterval cleanResourceInterval cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval
    clearRetryTopicWhenDeleteTopic clientAsyncSemaphoreValue clientCallbackExecutorThreads
    clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientManageThreadPoolNums
    clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable
    clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads clusterTopicEnable coldCtrStrategyEnable
    coldDataFlowControlEnable coldDataScanEnable combineAssignOffsetCQType combineCQEnableCheckSelf
    combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType commercialBaseCount
    commercialSizePerMsg commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
    commitLogForceSwapMapInterval commitLogRecoverMaxNum commitLogSwapMapInterval commitLogSwapMapReserveFileNum
    compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum
    compatibleWithOldNameSrv compressedRegister configBlackList configManagerVersion connectTimeoutMillis
    consumerFallbehindThreshold consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
    consumerOffsetUpdateVersionStep controllerAddr controllerHeartBeatTimeoutMills
    correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval dLegerGroup dLegerPeers dLegerSelfId
    dataReadAheadEnable debugLockEnable defaultMessageRequestMode defaultPopShareQueueNum defaultQueryMaxNum
    defaultTopicQueueNums delayOffsetUpdateVersionStep deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval
    deleteFileBatchMax deleteWhen destroyMapedFileIntervalForcibly disableCallbackExecutor
    disableConsumeIfConsumerReadSlowly disableNettyWorkerGroup disappearTimeAfterStart diskFallRecorded
    diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio dispatchCqCacheNum
    dispatchCqThreads dispatchFromSenderThread duplicationEnable enableAcceleratedRecovery enableAsyncReput
    enableAutoInSyncReplicas enableBatchPush enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently
    enableCalcFilterBitMap enableCleanExpiredOffset enableCompaction enableConnectionMetrics enableConsumeQueueExt
    enableControllerMode enableCreateSysGroup enableDLegerCommitLog enableDetailStat enableFastChannelEventProcess
    enableLagAndDlqMetrics enableLmq enableLmqStats enableLogConsumeQueueRepeatedlyBuildWhenRecover
    enableMessageStoreMetrics enableMixedMessageType enableMultiDispatch enableNetWorkFlowControl
    enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge
    enablePopLog enablePopMessageThreshold enablePopMetrics enablePropertyFilter enableReconnectForGoAway
    enableRegisterProducer enableRemoteEscape enableRemotingMetrics enableRequestMetrics enableRetryTopicV2
    enableRocksDBLog enableRunningFlagsInFlush enableScheduleAsyncDeliver enableScheduleMessageStats
    enableShutdownGracefully enableSingleTopicRegister enableSkipLongAwaitingAck enableSlaveActingMaster
    enableSplitMetadata enableSplitRegistration enableStatsMetrics enableTransactionMetrics enabledAppendPropCRC
    endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation expectConsumerNumUseFilter
    fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup
    fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval fileReservedTime filterDataCleanTimeSpan
    filterSupportRetry flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
    flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushConsumerOffsetHistoryInterval
    flushConsumerOffsetInterval flushDelayOffsetInterval flushDiskType flushIntervalCommitLog
    flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile forceRegister forceVerifyPropCRC forwardTimeout
    globalColdReadThreshold haFlowControlEnable haHousekeepingInterval haListenPort haMasterAddress
    haMaxGapNotInSync haMaxTimeSlaveNotCatchup haSendHeartbeatInterval haTransferBatchSize heartbeatThreadPoolNums
    heartbeatThreadPoolQueueCapacity highSpeedMode inBrokerContainer inSyncReplicas indexFileReadEnable
    indexFileWriteEnable indexRocksDBEnable initAuthenticationUser initPopOffsetByCheckMsgInMem
    innerClientAuthenticationCredentials isBrokerContainer isInBrokerContainer isScanAvailableNameSrv
    isolateLogEnable listenPort litePullMessageEnable litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
    loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
    lockInStrictMode logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
    logicalDiskSpaceCleanForciblyThreshold longPollingEnable mappedFileSizeCommitLog mappedFileSizeConsumeQueue
    mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog mappedFileSwapEnable mapperFileSizeBatchConsumeQueue
    maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan maxErrorRateOfBloomFilter
    maxFilterMessageSize maxHaTransferByteInSecond maxHashSlotNum maxIndexNum maxLmqConsumeQueueNum maxMessageSize
    maxMsgsNumBatch maxOffsetMapSize maxPopPollingSize maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles
    maxRocksDBIndexQueryDays maxSlaveResendLength maxStatsIdleTimeInMinutes maxTopicLength
    maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInDisk
    maxTransferCountOnMessageInMemory memTableFlushIntervalMs messageDelayLevel messageIndexEnable messageIndexSafe
    messageStorePlugIn metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader metricsGrpcExporterTarget
    metricsInDelta metricsLabel metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort
    migrateAuthFromV1Enabled minInSyncReplicas msgTraceTopicName namesrvAddr notifyConsumerIdsChangedEnable
    offsetCheckInSlave osPageCacheBusyTimeOutMills popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
    popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
    popConsumerKVServiceLog popFromRetryProbability popFromRetryProbabilityForPriority popInflightMessageThreshold
    popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize
    popResponseReturnActualRetryTopic popReviveConcurrency popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
    preferredLeader preferredLeaderId printChannelGroups printChannelGroupsMinNum priorityOrderAsc
    processReplyMessageThreadPoolNums pullBatchMaxMessageCount pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout putMsgIndexHightWater
    putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity readOnlyCommitLogStorePaths
    readUnCommitted realTimeNotifyConsumerChange realTimePersistRocksDBConfig recallMessageEnable
    recheckReputOffsetFromCq recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval regionId
    registerBrokerTimeoutMills registerNameServerPeriod rejectPullConsumerEnable rejectTransactionMessage
    replicasPerDiskPartition replyThreadPoolQueueCapacity retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs
    reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime rmqAddressServerDomain rmqAddressServerSubGroup
    rocketmqHome rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency
    rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps scanAvailableNameSrv
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable
    sendHeartbeatTimeoutMillis sendMessageThreadPoolNums sendThreadPoolQueueCapacity serverAsyncSemaphoreValue
    serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverLoadBalancerEnable
    serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
    serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads sharedByteBufferNum
    shortPollingTimeMills shutdownWaitTimeSeconds skipPreOnline skipWhenCKRePutReachMaxTimes slaveReadEnable
    slaveTimeout socksProxyConfig spinLockCollisionRetreatOptimalDegree splitMetadataSize splitRegistrationSize
    startAcceptSendRequestTimeStamp statRocksDBCQIntervalSec statefulAuthenticationCacheExpiredSecond
    statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
    storePathBrokerIdentity storePathCommitLog storePathDLedgerCommitLog storePathEpochFile storePathRootDir
    storeReplyMessageEnable storeType subscriptionExpiredTimeout syncBrokerMemberGroupPeriod
    syncBrokerMetadataPeriod syncControllerMetadataPeriod syncFlushTimeout syncFromLastFile
    syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerColdDataCheckIntervalMs timerCongestNumEachSlot
    timerEnableCheckMetrics timerEnableDisruptor timerEnableRetryUntilSuccess timerFlushIntervalMs
    timerGetMessageThreadNum timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs
    timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimeWheelEnable timerRecallToTimelineEnable
    timerRocksDBEnable timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps
    timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps timerRollWindowSlot
    timerSkipUnknownError timerStopDequeue timerStopEnqueue timerWarmEnable timerWheelEnable timerWheelSnapshotFlush
    timerWheelSnapshotIntervalMs tls.client.authServer tls.client.certPath tls.client.keyPassword tls.client.keyPath
    tls.client.trustCertPath tls.config.file tls.enable tls.server.authClient tls.server.certPath
    tls.server.keyPassword tls.server.keyPath tls.server.mode tls.server.need.client.auth tls.server.trustCertPath
    tls.test.mode.enable topicQueueLockNum totalReplicas traceOn traceTopicEnable transRocksDBEnable
    transWriteOriginTransHalfEnable transactionCheckInterval transactionCheckMax transactionMetricFlushInterval
    transactionOpBatchInterval transactionOpMsgMaxSize transactionTimeOut transferMsgByHeap transientStorePoolEnable
    transientStorePoolSize travelCqFileNumWhenGetMessage updateNameServerAddrPeriod useABSLock
    useEpollNativeSelector usePIDColdCtrStrategy useReentrantLockWhenPutMessage useSeparateRetryQueue
    useServerSideResetOffset useSingleRocksDBForAllConfigs useStaticSubscription useTLS userCacheExpiredSecond
    userCacheMaxNum userCacheRefreshSecond validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue
    waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
    waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue wakeCommitWhenPutMessage
    wakeFlushWhenPutMessage warmMapedFileEnable writeBufferHighWaterMark writeBufferLowWaterMark writeWithoutMmap
"""

JAVA_KEYS = frozenset(_NAMES.split())


_LONGEST = max(map(len, JAVA_KEYS))  # what a key has beyond it is compared with nothing
_log = logging.getLogger(__name__)


class _Refusal(NamedTuple):
    harmless: frozenset[str]
    reason: str


def _unless(harmless: str, reason: str) -> _Refusal:
    return _Refusal(frozenset(harmless.split("|")), reason)


_REFUSED = {
    "allAckInSyncStateSet": _unless("false", "controller mode is not built"),
    "enableDLegerCommitLog": _unless("false", "the DLedger log is not built"),
    "enableControllerMode": _unless("false", "controller mode is not built"),
    "enableRemoteEscape": _unless("false", "what an acting master cannot write is not sent to other brokers"),
    "duplicationEnable": _unless("false", "a replicated log is not built"),
    "storeType": _unless("default", "the RocksDB store is not built"),
    "configManagerVersion": _unless("v1", "only the JSON config files are built"),
    "popConsumerKVServiceEnable": _unless("false", "leases in RocksDB are not built"),
    "timerRocksDBEnable": _unless("false", "timer messages in RocksDB are not built"),
    "timerWheelSnapshotFlush": _unless("false", "snapshots of the timer wheel are not built"),
    "enableLmq": _unless("false", "light message queues are not built"),
    "enableMultiDispatch": _unless("false", "light message queues are not built"),
    "aclEnable": _unless(
        "false",
        "the rules of plain_acl.yml are imported instead: set authenticationEnabled, authorizationEnabled and "
        "migrateAuthFromV1Enabled to true, and aclEnable to false",
    ),
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


def warn_unused(settings: Mapping[str, str], *, used: frozenset[str], most_hints: int | None = None) -> None:
    """Name the keys that have no effect; what unknown ones may mean takes a while to find out."""
    unknown: list[str] = []
    for key in settings:
        if key in used or key in _REFUSED:
            continue
        if key in JAVA_KEYS:
            _log.warning("setting %s has no effect: rocketlet does not use it", key)
            continue
        unknown.append(key)
    for key in unknown[:most_hints]:
        from difflib import get_close_matches  # of use after a mistake only, and slow to import

        nearest = get_close_matches(key[:_LONGEST], used | JAVA_KEYS, n=1, cutoff=0)
        _log.warning("setting %.100s is unknown; did you mean %s?", key, nearest[0])
    if most_hints is not None and len(unknown) > most_hints:
        _log.warning("%d more settings are unknown: %.200s", len(unknown) - most_hints, ", ".join(unknown[most_hints:]))
