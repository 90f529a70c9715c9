"""The faults that `make mutants` puts into the code."""

import json
import pathlib

import pytest
from mutants.operators import find_mutations
from mutants.run import EQUIVALENTS, PARTS, ROOT, Fault, Recording, choose


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a, b):\n    return a < b\n", ["return None", "<="]),
        ("def f(a):\n    return a is not None\n", ["return None", "is", "True"]),
        ("def f(a, b):\n    x = a and not b\n", ["or", "(b)"]),
        ("x = a + b << c\n", [">>", "-"]),
        ("x = 'a' + b\n", []),
        ("x = 7, True, None\n", ["8", "False", "True"]),
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
    recording = Recording({"slow": 2.0, "quick": 0.1, "other": 0.2}, {file: lines})
    chosen = choose(ROOT, "store", recording, 5, 1)
    assert chosen == choose(ROOT, "store", recording, 5, 1) != choose(ROOT, "store", recording, 5, 2)
    assert {fault.file for fault in chosen} == {file}
    assert all(fault.mutation.line < 40 and fault.tests == ["quick", "slow"] for fault in chosen)


def test_proofs_belong_to_faults_that_can_be_made() -> None:
    """Whoever changes code takes the proofs along."""
    proofs: dict[str, str] = json.loads(EQUIVALENTS.read_text())
    for key, proof in proofs.items():
        path = pathlib.Path(key.partition(":")[0])
        found = {Fault(str(path), mutation, ()).key for mutation in find_mutations((ROOT / path).read_bytes())}
        assert key in found, f"{key} cannot be made any more"
        assert proof.endswith("."), f"the proof of {key} is a sentence"
