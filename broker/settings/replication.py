"""The settings of masters and slaves, by Java's keys (spec replication.md §1)."""

from typing import Annotated, Final

from msgspec import Struct

from ...common.errors import ConfigError
from ...common.ids import ANY_HOSTS, Network, is_address, parse_networks
from ...common.settings import Key

ASYNC_MASTER: Final = "ASYNC_MASTER"
SYNC_MASTER: Final = "SYNC_MASTER"
SLAVE: Final = "SLAVE"
_ROLES: Final = (ASYNC_MASTER, SYNC_MASTER, SLAVE)
_LEAST_ADDRESS = 6  # characters; what is shorter is none (``DefaultHAClient``)
_MOST_REPLICAS = 100

LIVE_REPLICATION_KEYS: Final = frozenset(
    [
        *("haSendHeartbeatInterval", "haHousekeepingInterval", "haTransferBatchSize", "haMaxGapNotInSync"),
        *("haFlowControlEnable", "maxHaTransferByteInSecond", "slaveTimeout", "inSyncReplicas", "minInSyncReplicas"),
        *("enableAutoInSyncReplicas", "syncFromLastFile", "offsetCheckInSlave"),
    ]
)


class ReplicationConfig(Struct, frozen=True, kw_only=True):
    """How a log is copied; fields in the order of ``--print-config``."""

    role: Annotated[
        str, Key("brokerRole", "ASYNC_MASTER, SYNC_MASTER: a send waits for slaves, or SLAVE: a copy of its master")
    ] = ASYNC_MASTER
    ha_port: Annotated[
        int, Key("haListenPort", "port at which slaves copy the log; 0 means listenPort + 1", most=65_535)
    ] = 0
    ha_bind_host: Annotated[
        str, Key("haBindAddress", "address to listen at for slaves; bindAddress unless given; not Java's")
    ] = ""
    ha_peers: Annotated[
        str,
        Key("haAllowFrom", "who may copy the log: addresses, networks, between commas; all unless given; not Java's"),
    ] = ""
    ha_host: Annotated[str, Key("brokerIP2", "address that slaves shall use; that of clients unless given")] = ""
    master_ha_address: Annotated[
        str, Key("haMasterAddress", "where a slave copies from; what the name server says unless given")
    ] = ""
    master_address: Annotated[
        str, Key("masterAddress", "broker that a slave copies, until a name server has said where it is; not Java's")
    ] = ""
    heartbeat_ms: Annotated[
        int, Key("haSendHeartbeatInterval", "silence after which master and slave tell where they are", least=1)
    ] = 5_000
    housekeeping_ms: Annotated[
        int, Key("haHousekeepingInterval", "silence after which they take each other for gone", least=1)
    ] = 20_000
    batch_bytes: Annotated[int, Key("haTransferBatchSize", "bytes of a frame at most", least=1, most=1 << 20)] = 32_768
    most_gap_bytes: Annotated[
        int, Key("haMaxGapNotInSync", "how far a slave may be behind and still counts as in sync", least=1)
    ] = 268_435_456
    is_flow_controlled: Annotated[bool, Key("haFlowControlEnable", "limit what each slave is sent in a second")] = False
    most_bytes_in_second: Annotated[int, Key("maxHaTransferByteInSecond", "to so many bytes", least=1)] = 104_857_600
    slave_timeout_ms: Annotated[int, Key("slaveTimeout", "how long a send waits for slaves under SYNC_MASTER")] = 3_000
    in_sync_replicas: Annotated[
        int,
        Key(
            "inSyncReplicas",
            "how many must have a message under SYNC_MASTER, the master is one",
            least=1,
            most=_MOST_REPLICAS,
        ),
    ] = 1
    least_in_sync_replicas: Annotated[
        int, Key("minInSyncReplicas", "with fewer no message is taken where a slave may act as master", least=1)
    ] = 1
    adapts_in_sync_replicas: Annotated[
        bool,
        Key("enableAutoInSyncReplicas", "with enableSlaveActingMaster, no more than are in sync need to have it"),
    ] = False
    starts_at_newest_file: Annotated[
        bool, Key("syncFromLastFile", "give an empty slave the newest file only, as before; else all there are")
    ] = False
    checks_offset_in_slave: Annotated[
        bool, Key("offsetCheckInSlave", "correct readers beyond the end of a slave's queue; else they wait for it")
    ] = False
    acts_as_master: Annotated[
        bool,
        Key("enableSlaveActingMaster", "let the first slave stand in for a master that is gone; set at all members"),
    ] = False
    total_replicas: Annotated[
        int,
        Key(
            "totalReplicas",
            "members of such a group; above 1 a broker is level with the others before clients find it",
            least=1,
            most=_MOST_REPLICAS,
        ),
    ] = 1
    skips_pre_online: Annotated[bool, Key("skipPreOnline", "let clients find it at once all the same")] = False
    sign_of_life_ms: Annotated[
        int, Key("brokerHeartbeatInterval", "how often such members say that they are alive", least=1)
    ] = 1_000
    not_active_ms: Annotated[
        int, Key("brokerNotActiveTimeoutMillis", "silence after which name servers take them for gone", least=1)
    ] = 10_000
    ask_members_ms: Annotated[
        int, Key("syncBrokerMemberGroupPeriod", "how often they ask name servers who is there", least=1)
    ] = 1_000
    asks_as_before_5: Annotated[
        bool, Key("compatibleWithOldNameSrv", "do both by requests that name servers before 5.0 know")
    ] = True

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            raise ConfigError(f"brokerRole is {self.role!r}, it must be one of {', '.join(_ROLES)}", key="brokerRole")
        if self.master_address and not is_address(self.master_address):
            raise ConfigError(f"masterAddress is {self.master_address!r}, which is no host:port", key="masterAddress")
        _ = self.allowed_peers  # what cannot be used stops the start

    @property
    def allowed_peers(self) -> tuple[Network, ...]:
        """Who may copy the log; empty for everybody (raises ``ConfigError``)."""
        return parse_networks(self.ha_peers, "haAllowFrom")

    @property
    def told_ha_host(self) -> str:
        """The host that slaves shall use, empty for that of clients."""
        return self.ha_host or ("" if self.ha_bind_host in ANY_HOSTS else self.ha_bind_host)

    @property
    def is_slave(self) -> bool:
        """Whether the broker is a copy of its master."""
        return self.role == SLAVE

    @property
    def may_lag(self) -> bool:
        """Whether an offset beyond a queue may be one that the master has."""
        return self.is_slave and not self.checks_offset_in_slave

    @property
    def named_master(self) -> str:
        """The address to copy from, if the settings name one."""
        return self.master_ha_address if len(self.master_ha_address) >= _LEAST_ADDRESS else ""

    @property
    def needed_acks(self) -> int:
        """How many slaves must have a message before its sender is answered."""
        return self.in_sync_replicas - 1 if self.role == SYNC_MASTER else 0

    def replicas_for(self, in_sync: int) -> int:
        """Return how many must have a message in a group whose slaves may act as master; so many are in sync."""
        if not self.adapts_in_sync_replicas:
            return self.in_sync_replicas
        return max(min(self.in_sync_replicas, in_sync), self.least_in_sync_replicas)

    @property
    def begins_isolated(self) -> bool:
        """Whether clients find the broker only when it is level with the others of its group."""
        return self.acts_as_master and self.total_replicas > 1 and not self.skips_pre_online
