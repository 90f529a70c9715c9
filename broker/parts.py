"""What the parts of a broker are handed: what was found on its disk, and for administrators also what runs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..common.clock import Clock
from ..remoting.transport.connection import Connection
from ..remoting.transport.event_loop import TaskScope
from ..store.files.files import Files
from ..store.message_store import MessageStore
from .admin.cleaning import CleaningJob
from .admin.statistics import BrokerStatistics
from .delay.delay_delivery import DelayedDelivery
from .delay.delay_progress import DelayProgress, DelaySaveJob
from .delay.timer_delivery import TimerDelivery
from .group.filters import FilterTable
from .group.groups import GroupTable, OffsetTable, RequestModeTable
from .group.members import EveryMember, Members
from .jobs import SaveJob
from .outcomes.scheduler import LongPolling, Scheduler
from .pop_answers import PopAnswers
from .replication.log_replication import LogReplication
from .settings.config import BrokerConfig
from .settings.live import LiveSettings
from .settings.saved import SettingsFile
from .topic.registration import Registration
from .topic.topics import TopicTable
from .transaction.transactions import Transactions

if TYPE_CHECKING:
    from .admin.guests import GuestLink
    from .pop.ordered_batches import OrderedBatches
    from .replication.kept_tables import KeptTables
    from .security.storage import SecurityStore


class StoredState(NamedTuple):
    """What a broker has found on its disk: the store, settings, the tables of ``config/``, and who saves these.

    ``kept`` is ``None`` on a master that keeps nothing for slaves, ``batches`` where nobody has popped in order,
    ``security`` where requests are not checked and there never was a user. ``files`` is how the disk is touched.
    """

    store: MessageStore
    settings: LiveSettings
    settings_file: SettingsFile
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    modes: RequestModeTable
    filters: FilterTable
    delays: DelayProgress
    saving: SaveJob
    delay_saving: DelaySaveJob
    kept: "KeptTables | None"
    batches: "OrderedBatches | None"
    security: "SecurityStore | None"
    files: Files


class AdminParts(NamedTuple):
    """What administrators look at and change; ``config`` is for what is read at the start only."""

    clock: Clock
    config: BrokerConfig
    state: StoredState
    tasks: TaskScope
    registration: Registration
    scheduler: Scheduler
    cleaning: CleaningJob
    long_polling: LongPolling
    delay_delivery: DelayedDelivery
    timer_delivery: TimerDelivery | None
    members: Members[Connection]
    guests: "Members[GuestLink]"
    everybody: EveryMember
    statistics: BrokerStatistics
    own_address: Callable[[], str]
    replication: LogReplication
    transactions: Transactions
    pop: PopAnswers
