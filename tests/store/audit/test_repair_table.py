"""What a repair makes of damage, word for word: what it plans, which files it would save, what can be read then."""

import pathlib

import pytest
from damage import audit, contents, damaged_copy, read_cases, sound_stores, without_paths
from stores import StoreDirectory, file_bytes

from rocketlet.common.errors import ConfigError, StoreError
from rocketlet.store.audit.repair import apply_repair, plan_repair, reopen, save_cut
from rocketlet.store.audit.store_audit import StoreAudit

REPAIRS = pathlib.Path(__file__).parent / "repairs.txt"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, vectors: pathlib.Path) -> dict[str, StoreDirectory]:
    """Give the stores without damage."""
    return sound_stores(vectors, tmp_path_factory.mktemp("sound"))


def told(directory: StoreDirectory, saved: pathlib.Path) -> list[str]:
    """Plan, save and repair; return the plan, what is read then and what an audit says."""
    found = StoreAudit(directory.config)
    try:
        found.run()
        plan = plan_repair(found)
    except (ConfigError, StoreError) as error:
        return without_paths([f"refused: {error}"], directory)
    lines = without_paths(plan.lines(), directory)
    logs = file_bytes(directory.root / "commitlog")
    save_cut(plan, str(saved))
    copies = file_bytes(saved / "commitlog")
    assert copies.items() <= logs.items()
    apply_repair(plan)
    left = sorted(str(path.relative_to(directory.root)) for path in directory.root.rglob("*") if path.is_file())
    kinds = ("consumequeue", "batchconsumequeue", "index", "timerlog", "abort", "checkpoint")
    counts = {kind: sum(name.startswith(kind) for name in left) for kind in kinds}
    try:
        reopen(directory.config, lambda: directory.now_ms)
    except ConfigError as error:
        held = without_paths([f"refused: {error}"], directory)
    else:
        with directory.open() as store:
            held = contents(store)
    return [
        *lines,
        f"saves {', '.join(copies) or 'nothing'}",
        f"leaves {', '.join(f'{kind} {count}' for kind, count in counts.items() if count)}",
        *held,
        f"then {audit(directory).lines()[-1]}",
    ]


@pytest.mark.parametrize(
    ("case", "expected"), read_cases(REPAIRS), ids=lambda value: value if isinstance(value, str) else ""
)
def test_repair_of_damage(
    case: str, expected: list[str], stores: dict[str, StoreDirectory], tmp_path: pathlib.Path
) -> None:
    """An operator reads beforehand what will be lost; what the plan does not name is kept."""
    assert told(damaged_copy(stores, case, tmp_path), tmp_path / "saved") == expected
