"""The faults that `make mutants` puts into the code."""

import json
import pathlib

import pytest
from mutants.operators import Mutation, find_mutations
from mutants.run import (
    EQUIVALENTS,
    PARTS,
    ROOT,
    Fault,
    Recording,
    Verdicts,
    choose,
    imported_files,
    write_page,
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a, b):\n    return a < b\n", ["return None", "<="]),
        ("def f(a):\n    return a is not None\n", ["return None", "is", "True"]),
        ("def f():\n    return False\n", ["True"]),
        ("x = zip(a, b, strict=True)\n", []),
        ("def f(a, b):\n    x = a and not b\n", ["or", "(b)"]),
        ("x = a + b << c\n", [">>", "-"]),
        ("x = 'a' + b\n", []),
        ("x = 7, True, None\n", ["8", "False", "True"]),
        ("x = 999, 1_000\n", ["1000", "2000"]),
        ("if a:\n    f(b)\n", ["not (a)", "pass"]),
        ("async def f():\n    await g()\n", ["pass"]),
        ("def f():\n    _log.warning('a', 1 + 2)\n", []),
        ("def __repr__(self):\n    return str(1)\n", []),
        ("while True:\n    break\n", ["continue"]),
        ("for a in b:\n    continue\n", ["break"]),
        ("x = min(sorted(a))\n", ["max", "list"]),
        ("x += 1\n", ["-=", "=", "2"]),
        ("x: int | None = 3\n", ["4"]),
        ("x = y[int]\nz = y[a < b]\n", ["<="]),
        ("x = [a for a in b if a]\n", ["not (a)"]),
        ("if TYPE_CHECKING:\n    x = 1\n", []),
        ('def f():\n    """Return 1 + 1."""\n', []),
        ("raise ValueError(1)\n", ["pass", "2"]),
        ("a.pop(b, None)\nx = a.pop(b, None)\n", ["pass", "True"]),
    ],
)
def test_operators_change_what_they_should(source: str, expected: list[str]) -> None:
    """Each place is changed once for each operator; texts, types and log calls are left alone."""
    assert sorted(each.after for each in find_mutations(source.encode())) == sorted(expected)


def test_fault_is_named_by_its_place_in_a_line() -> None:
    """So the proof about one place of a function does not stand for others."""
    found = find_mutations(b"def f():\n    g(\n        None, None\n    )\n")
    assert [str(each) for each in found] == [
        "{g( None, None ) -> pass}",
        "{None -> True}, None",
        "None, {None -> True}",
    ]


@pytest.mark.parametrize("part", PARTS)
def test_every_fault_gives_a_module(part: str) -> None:
    """What an operator makes of a module is Python that differs from it, also where texts are not ASCII."""
    for path in sorted((ROOT / part).rglob("*.py"))[::7]:
        source = path.read_bytes()
        for mutation in find_mutations(source)[::11]:
            changed = mutation.apply(source)
            assert changed != source
            compile(changed, path, "exec", dont_inherit=True)


def test_faults_are_chosen_by_seed_in_lines_that_tests_run() -> None:
    """The same seed chooses the same faults; the quickest test of a line comes first."""
    file = "store/files/checkpoint.py"
    lines = {line: ["slow", "quick"] for line in range(1, 40)}
    recording = Recording({"slow": 2.0, "quick": 0.1, "other": 0.2}, {file: lines}, {})
    chosen = choose(ROOT, "store", recording, 5, 1)
    assert chosen == choose(ROOT, "store", recording, 5, 1) != choose(ROOT, "store", recording, 5, 2)
    assert {fault.file for fault in chosen} == {file}
    assert all(fault.mutation.line < 40 and fault.tests == ["quick", "slow"] for fault in chosen)


def test_tests_of_a_module_come_first() -> None:
    """They are the likeliest to see a fault; what runs at import is run by whoever runs a line of the file."""
    quick, own, other = "tests/store/test_quick.py::a", "tests/store/files/test_log.py::b", "tests/store/test_c.py::c"
    table = "tests/store/test_table.py::d"
    seconds = {quick: 0.1, own: 2.0, other: 0.2, table: 0.3}
    lines = {"store/files/log.py": {3: [quick], 9: [other, own]}}
    recording = Recording(seconds, lines, {"tests/store/test_table.py": {"store/files/log.py"}})
    default, body, of_class = find_mutations(b"class A:\n    def f(self, a=1):\n        return a\n    b = 2\n")
    assert [each.at_import for each in (body, default, of_class)] == [False, True, True]
    assert recording.tests_of("store/files/log.py", body) == [own, quick]
    assert recording.tests_of("store/files/log.py", default) == [own, quick, other, table]


def test_files_of_tests_take_turns() -> None:
    """Of the tests of other modules the quickest of each file is asked before the second of any."""
    seconds = {"tests/store/test_a.py::1": 0.1, "tests/store/test_a.py::2": 0.2, "tests/store/test_b.py::3": 0.3}
    recording = Recording(seconds, {"store/files/log.py": {1: sorted(seconds)}}, {})
    mutation = find_mutations(b"def f(): return 1\n")[0]
    names = [name.partition("::")[2] for name in recording.tests_of("store/files/log.py", mutation)]
    assert names == ["1", "3", "2"]


def test_imports_of_tests_are_read() -> None:
    """A module is found in both forms of an import."""
    assert {
        "remoting/codec/request_codes.py",
        "remoting/headers/pull.py",
        "common/codes.py",
    } <= set(imported_files(ROOT / "tests/remoting/test_headers.py")) | set(
        imported_files(ROOT / "tests/remoting/codec/test_request_codes.py")
    )


def test_figures_of_other_parts_stay(tmp_path: pathlib.Path) -> None:
    """A run of one part replaces its row and its survivors."""
    first, second = find_mutations(b"x = 1, 2\n")

    def verdicts(part: str, mutation: Mutation, *outcomes: str) -> Verdicts:
        return Verdicts(part, [(Fault(f"{part}/a.py", mutation, ()), outcome) for outcome in outcomes])

    page = tmp_path / "page.md"
    page.write_text("above\n<!-- mutants -->\n<!-- end of mutants -->\nbelow\n")
    write_page(page, [verdicts("spark", first, "survived", "killed"), verdicts("store", first, "survived")], 7)
    write_page(page, [verdicts("store", second, "survived", "killed", "hung", "equivalent")], 8)
    assert page.read_text().splitlines() == [
        "above",
        "<!-- mutants -->",
        "| part | seed | faults | killed | hung | survived | equivalent | seen |",
        "|---|---|---|---|---|---|---|---|",
        "| store | 8 | 4 | 1 | 1 | 1 | 1 | 67 % |",
        "| spark | 7 | 2 | 1 | 0 | 1 | 0 | 50 % |",
        "",
        "Survivors:",
        "",
        "- `store/a.py:1: x = 1, {2 -> 3}`",
        "- `spark/a.py:1: x = {1 -> 2}, 2`",
        "<!-- end of mutants -->",
        "below",
    ]


def test_proofs_belong_to_faults_that_can_be_made() -> None:
    """Whoever changes code takes the proofs along."""
    proofs: dict[str, str] = json.loads(EQUIVALENTS.read_text())
    for key, proof in proofs.items():
        path = pathlib.Path(key.partition(":")[0])
        found = {Fault(str(path), mutation, ()).key for mutation in find_mutations((ROOT / path).read_bytes())}
        assert key in found, f"{key} cannot be made any more"
        assert proof.endswith("."), f"the proof of {key} is a sentence"
