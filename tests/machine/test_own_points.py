"""A user's own file of points: every mistake at its place, all in one run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hpc.cli import main
from hpc.machine.published import FOLDER
from hpc.machine.runs import COMMON, KINDS

README = (FOLDER.parent / "README.md").read_text()
(EXAMPLE,) = re.findall(r"^```toml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

GMM = 'kind = "gmm", rows = 64, n = 32, k = 32, groups = 2, dtype = "bf16"'
VECTOR = (
    'kind = "vector", op = "swiglu", rows = 8, read_cols = 64, write_cols = 32, '
    'dtype = "bf16"'
)
PAIR = (
    'kind = "pair", rows = 64, cols = 32, dtype = "bf16", blocks = 2, interleaved = 1'
)
EXCHANGE = (
    'kind = "exchange", which = "dispatch", tokens = 8, cols = 32, dtype = "bf16", '
    "ep = 2, experts = 4, top_k = 2, rows_per_put = 4"
)
LAYER = 'kind = "layer", spec = "deepseek_v3", policy = "paper", ep = 4, experts = 32'


def point(run: str = GMM, **keys: str) -> str:
    """One point, `run` in its seventh line."""
    given = {
        "id": '"p"',
        "source": '"s"',
        "role": '"held out"',
        "value": "1",
        "unit": '"us"',
        "run": f"{{ {run} }}",
        "tolerance": "0.1",
    }
    given.update(keys)
    lines = [f"{key} = {value}" for key, value in given.items() if value]
    return "\n".join(["[[point]]", *lines, ""])


Validate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def validate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Validate:
    """`validate(text, ...)`: status, stdout and stderr; the file's name is cut."""

    def call(text: str, *more: str, machine: str = "ascend_a3") -> tuple[int, str, str]:
        path = tmp_path / "mine.toml"
        path.write_text(text)
        arguments = ["machine", "validate", machine, "--points", str(path), *more]
        status = main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err.replace(str(path), "mine.toml")

    return call


def test_the_example_of_the_readme_runs(validate: Validate) -> None:
    status, out, err = validate(EXAMPLE, "--json")
    points = json.loads(out)["points"]
    assert [one["point"] for one in points] == ["up projection", "gain over serial"]
    assert {one["verdict"] for one in points} == {"ok"}, points
    assert (status, err) == (0, "")


def test_the_readme_has_every_setting_with_its_range() -> None:
    table = [*KINDS.items(), ("any", COMMON)]
    for kind, settings in table:
        for setting in settings:
            label = kind if kind == "any" else f"`{kind}`"
            (line,) = re.findall(rf"^\| {label} \| `{setting.name}` .*$", README, re.M)
            assert setting.doc in line
            if setting.words is None:
                assert f"{setting.low} .. {setting.high}" in line
            else:
                assert all(f"`{word}`" in line for word in setting.words)
    rows = re.findall(r"^\| (?:any|`[a-z]+`) \| `[a-z_]+` \|", README, re.M)
    assert len(rows) == sum(len(settings) for _, settings in table)


@pytest.mark.parametrize("run", [GMM, VECTOR, PAIR, EXCHANGE])
def test_a_miss_fails_and_a_known_miss_does_not(run: str, validate: Validate) -> None:
    status, out, _ = validate(point(run, value="1e9"))
    assert status == 1
    assert "FAILED" in out
    status, out, _ = validate(point(run, value="1e9", tolerance="", missing='"rain"'))
    assert status == 0
    assert "term that the model lacks: rain" in out


def test_a_point_for_other_machines_is_left_out(validate: Validate) -> None:
    other = point(id='"q"', machines='["mine", "ascend_a2"]')
    status, out, err = validate(point(value="5.5", tolerance="1") + other)
    assert "q " not in out
    assert err == ("mine.toml: note: 1 left out, for other machines: ascend_a2, mine\n")
    assert status == 0
    status, _, err = validate(other)
    assert "mine.toml: error: all points are for other machines: ascend_a2" in err
    assert status == 1
    assert "q " in validate(other, machine="ascend_a2")[1]


FAULTS: dict[str, tuple[str, str]] = {
    "kind": (
        point(GMM.replace("gmm", "gm")),
        "7:9: error: point 'p': run: unknown kind 'gm'; did you mean 'gmm'?",
    ),
    "kind of another type": (point("kind = 3"), "7:9: error: point 'p': run: unknown"),
    "no kind": (point("rows = 3"), "7:1: error: point 'p': run: missing 'kind'; kinds"),
    "misspelt setting": (
        point(GMM.replace("rows", "rowss")),
        "7:23: error: point 'p': run: kind 'gmm' has no setting 'rowss'; did you mean",
    ),
    "missing setting": (
        point(GMM.replace("n = 32, ", "")),
        "7:1: error: point 'p': run: kind 'gmm' needs 'n' (columns of the result)",
    ),
    "zero": (
        point(GMM.replace("= 64", "= 0")),
        "7:23: error: point 'p': run: rows = 0 is outside 1 .. 2147483647",
    ),
    "fraction": (
        point(GMM.replace("= 64", "= 6.4")),
        "run: rows must be a whole number, got 6.4",
    ),
    "truth value": (
        point(GMM.replace("= 64", "= true")),
        "run: rows must be a whole number, got True",
    ),
    "huge": (
        point(GMM.replace("= 64", f"= 0x{'f' * 6000}")),
        "run: rows = a huge number is outside",
    ),
    "text for a number": (
        point(GMM.replace("= 64", "= '64'")),
        "run: rows must be a whole number, got '64'",
    ),
    "dtype": (
        point(GMM.replace("bf16", "bf61")),
        "run: unknown dtype 'bf61'; did you mean 'bf16'?",
    ),
    "operator": (
        point(VECTOR.replace("swiglu", "swigloo")),
        "run: unknown op 'swigloo'; did you mean 'swiglu'?",
    ),
    "operator of a cube": (
        point(VECTOR.replace("swiglu", "gmm")),
        "run: unknown op 'gmm'; expected one of swiglu",
    ),
    "columns": (
        point(VECTOR.replace("= 64", "= 65")),
        "swiglu reads 2 columns for 1 written; got read_cols = 65, write_cols = 32",
    ),
    "columns of a sum": (
        point(VECTOR.replace("swiglu", "reduce").replace("= 64", "= 65")),
        "reduce reads whole slots of write_cols; got read_cols = 65",
    ),
    "blocks": (
        point(PAIR.replace("blocks = 2", "blocks = 65")),
        "7:62: error: point 'p': run: blocks = 65 exceeds rows = 64",
    ),
    "tasks": (
        point(f"{VECTOR.replace('= 8', '= 999')}, blocks = 999, passes = 99"),
        "run: blocks x passes = 98901 tasks, more than 65536",
    ),
    "too few experts": (
        point(EXCHANGE.replace("ep = 2", "ep = 5")),
        "run: experts = 4 are fewer than ep = 5",
    ),
    "top_k": (
        point(EXCHANGE.replace("top_k = 2", "top_k = 5")),
        "run: top_k = 5 exceeds experts = 4",
    ),
    "rows over all ranks": (
        point(EXCHANGE.replace("tokens = 8", "tokens = 2147483647")),
        "rows exceed 2147483647",
    ),
    "puts": (
        point(
            EXCHANGE.replace("tokens = 8", "tokens = 9999999").replace(
                "put = 4", "put = 1"
            )
        ),
        "run: the exchange has 39999992 puts, more than 4194304",
    ),
    "window of a combine": (
        point(f"{EXCHANGE.replace('dispatch', 'combine')}, window = 1"),
        "run: window is for a dispatch, a combine has none",
    ),
    "counts of a combine": (
        point(f"{EXCHANGE.replace('dispatch', 'combine')}, counted = 1"),
        "run: counted is for a dispatch, a combine has none",
    ),
    "counts for a window": (
        point(f"{EXCHANGE}, window = 1, counted = 1"),
        "run: counted excludes window",
    ),
    "window, experts": (
        point(f"{EXCHANGE.replace('experts = 4', 'experts = 3')}, window = 1"),
        "run: window needs experts = 3 divisible by ep = 2",
    ),
    "window, rows": (
        point(f"{EXCHANGE.replace('tokens = 8', 'tokens = 9')}, window = 1"),
        "run: window needs tokens x top_k divisible by experts; got 18 and 4",
    ),
    "window, flag": (
        point(f"{EXCHANGE}, window = 2"),
        "run: window = 2 is outside 0 .. 1",
    ),
    "GB/s of what": (
        point(unit='"GB/s"'),
        "7:1: error: point 'p': run: unit 'GB/s' needs 'payload_bytes'",
    ),
    "payload of no rate": (
        point(f"{GMM}, payload_bytes = 3"),
        "run: payload_bytes is for 'GB/s', the unit is 'us'",
    ),
    "ratio": (point(unit='"x"'), "6:1: error: point 'p': unit 'x' is a ratio"),
    "versus": (
        point(versus=f"{{ {GMM} }}"),
        "9:1: error: point 'p': 'versus' makes a ratio, its unit is 'x', not 'us'",
    ),
    "inside versus": (
        point(unit='"x"', versus=f"{{ {GMM.replace('bf16', 'int4')} }}"),
        "9:65: error: point 'p': versus: unknown dtype 'int4'",
    ),
    "share": (point(unit='"%"', value="101"), "value 101 exceeds 100 %"),
    "role": (
        point(role='"guess"'),
        "4:1: error: point 'p': role must be one of fitted, held out, got 'guess'",
    ),
    "unit": (point(unit='"s"'), "unit must be one of us, ms, GB/s, x, %, got 's'"),
    "negative": (point(value="-1"), "value must be above 0"),
    "not a number": (point(value="nan"), "value must be above 0"),
    "infinite": (point(tolerance="inf"), "tolerance must be above 0"),
    "value as text": (point(value='"3"'), "value must be a number, got '3'"),
    "both": (point(missing='"rain"'), "needs either a tolerance or what is missing"),
    "neither": (point(tolerance=""), "1:1: error: point 'p': needs either a tolerance"),
    "terminal": (point(id='"\\u001b[2J"'), "id must be a line of text, got '\\x1b[2J'"),
    "machines": (point(machines='"a3"'), "machines must be a list of names"),
    "run": (point().replace(f"{{ {GMM} }}", "3"), "7:1: error: point 'p': run must be"),
    "missing key": (point(source=""), "1:1: error: point 'p': missing 'source'"),
    "misspelt key": (
        point(tolerence="1"),
        "9:1: error: point 'p': unknown key 'tolerence'; did you mean 'tolerance'?",
    ),
    "same id": (
        point() + point(),
        "10:1: error: point 'p': listed at mine.toml:2:1 already",
    ),
    "fact": (
        point(facts="{ clock_gz = 2 }"),
        "facts: a record has no 'clock_gz'; did you mean 'clock_ghz'?",
    ),
    "fact out of range": (
        point(facts="{ clock_ghz = 2000 }"),
        "9:11: error: point 'p': facts: clock_ghz: value 2000 is outside",
    ),
    "facts that exclude each other": (
        point(facts="{ hbm_gbps = 60 }"),
        "9:1: error: point 'p': facts: hbm_core_gbps = 64.0 exceeds hbm_gbps = 60.0",
    ),
    "policy": (
        point(LAYER.replace("paper", "papr")),
        "7:47: error: point 'p': run: unknown policy 'papr'; did you mean 'paper'?",
    ),
    "spec": (
        point(LAYER.replace("v3", "v2")),
        "7:25: error: point 'p': run: no spec 'deepseek_v2'; did you mean",
    ),
    "no placeholder": (
        point(f"{LAYER}, tokens = 3"),
        "run: spec 'deepseek_v3' has no $tokens",
    ),
    "no value": (
        point(LAYER.replace("ep = 4, ", "")),
        "7:1: error: point 'p': run: spec 'deepseek_v3' needs a value for $ep",
    ),
    "value of a placeholder": (
        point(LAYER.replace("ep = 4", "ep = [4]")),
        "run: ep must be a number or a string, got [4]",
    ),
    "huge value of a placeholder": (
        point(LAYER.replace("ep = 4", f"ep = 0x{'f' * 6000}")),
        "run: ep = a huge number exceeds 1e+15",
    ),
    "layer": (
        point(LAYER.replace("ep = 4", "ep = 64")),
        "run: spec 'deepseek_v3', line 5, column 17: experts = 32 are fewer than",
    ),
    "spec without a machine": (
        f"specs.a = 'layer a'\n{point()}",
        "1:1: error: spec 'a' must say machine = $machine",
    ),
    "spec with a stray $": (
        f"specs.a = 'machine = $machine $'\n{point()}",
        "1:1: error: spec 'a' has a '$' that begins no name",
    ),
    "spec that is no text": (
        f"specs.a = 3\n{point()}",
        "spec 'a' must be a text, got 3",
    ),
    "specs": (f"specs = 3\n{point()}", "1:1: error: specs are a table of texts"),
    "dtype of the machine": (
        point(GMM, machines='["ascend_a3"]', facts='{ dtypes = ["fp32"] }'),
        "7:62: error: point 'p': run: ascend_a3 has no bf16, it has: fp32",
    ),
    "memory": (
        point(GMM.replace("= 64", "= 2147483647")),
        "7:1: error: point 'p': run: its buffers take 274,877,910,912 bytes",
    ),
    "events": (
        point(PAIR.replace("= 64", "= 9999").replace("blocks = 2", "blocks = 1025")),
        "run: 1025 blocks take an event each, ascend_a3 has 1024",
    ),
    "top": (point() + "[[points]]\n", "9:1: error: unknown key 'points'; did you mean"),
    "one table": (point().replace("[[point]]", "[point]"), "write [[point]]"),
    "nothing": ("", "error: no [[point]] in this file"),
    "syntax": (point() + "[[point]\n", "9:8: error: not valid TOML: Expected ']]'"),
    "end": (point() + 'a = """b', "9:9: error: not valid TOML: Unterminated string"),
    "twice": (point() + "id = 3\n", "error: not valid TOML: Cannot overwrite a value"),
    "nesting": ("a = " + "[" * 9999, "error: not valid TOML: nested too deeply"),
    "digits": (f"a = {'9' * 9999}", "error: not valid TOML: Exceeds the limit"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_is_one_line_at_its_place(fault: str, validate: Validate) -> None:
    text, expected = FAULTS[fault]
    status, out, err = validate(text)
    assert (status, out) == (1, "")
    lines = err.splitlines()
    assert all(re.match(r"mine\.toml(:\d+:\d+)?: error: ", line) for line in lines)
    assert any(expected in line for line in lines), err


def test_every_mistake_is_told_in_one_run_in_order(validate: Validate) -> None:
    """Also those that only a machine, or the compiler of a layer, can know."""
    broken = [
        point(GMM.replace("bf16", "bf17"), id='"a"'),
        point(VECTOR.replace("= 64", "= 0"), id='"b"', value="0"),
        point(PAIR.replace("= 64", "= 9999").replace("= 2", "= 1025"), id='"c"'),
        point(LAYER.replace("ep = 4", "ep = 64"), id='"d"'),
    ]
    _, _, err = validate("".join(broken))
    lines = [int(line.split(":")[1]) for line in err.splitlines()]
    assert lines == [7, 13, 15, 23, 31]


def test_a_wrong_setting_hides_no_other_mistake(validate: Validate) -> None:
    """What must hold between two settings is checked if both are right."""
    run = EXCHANGE.replace('"dispatch"', '"dispach"').replace("ep = 2", "ep = 9")
    _, _, err = validate(point(run.replace("top_k = 2", "top_k = 5, cols_ = 3")))
    assert [line.split("run: ")[1].split(";")[0] for line in err.splitlines()] == [
        "unknown which 'dispach'",
        "experts = 4 are fewer than ep = 9",
        "top_k = 5 exceeds experts = 4",
        "kind 'exchange' has no setting 'cols_'",
    ]


def test_a_relation_of_a_missing_or_wrong_setting_is_not_asked(
    validate: Validate,
) -> None:
    for wrong in ("ep = -1", 'ep = "x"', "ep = 1.5", ""):
        run = EXCHANGE.replace("ep = 2, ", f"{wrong}, " if wrong else "")
        _, _, err = validate(point(run.replace("top_k = 2", "top_k = 5")))
        first, second = err.splitlines()
        assert "ep" in first.split("run: ")[1]
        assert second.endswith("top_k = 5 exceeds experts = 4")


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "No such file"), (b"\xff\xfe\x00", "not UTF-8"), ("dir", "s a directory")],
)
def test_a_file_that_cannot_be_read(
    content: bytes | str | None,
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "x.toml"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "dir":
        path.mkdir()
    assert main(["machine", "validate", "ascend_a3", "--points", str(path)]) == 1
    assert expected in capsys.readouterr().err


def test_a_name_is_not_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "validate", "ascend_a3", "--points", "mine"]) == 1
    assert "no published points for 'mine'; --points takes" in capsys.readouterr().err
