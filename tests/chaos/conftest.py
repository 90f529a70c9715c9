"""What only ``make chaos`` runs."""

import os

collect_ignore = [] if "ROCKETLET_CHAOS_ROUNDS" in os.environ else ["test_official_broker.py"]
