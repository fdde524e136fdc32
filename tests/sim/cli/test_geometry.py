"""`stateat geometry`: a table, JSON and a scenario, or one message and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from model_configs import config

from stateat.sim.cli.main import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config("qwen3.6-27b")))
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["geometry", *args], prog_name="stateat", env={"COLUMNS": "200"})


def refused(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def sizes(*args: str) -> dict[str, object]:
    result = run(*args, "--json", "-")
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_a_config_file_and_a_name_give_the_same() -> None:
    file, name = sizes("config.json"), sizes("--model", "qwen3.6-27b")
    assert {**file, "model": ""} == {**name, "model": ""}
    assert (file["block_size"], file["state_bytes"], file["token_bytes"]) == (784, 3_207_168, 4_096)
    assert file["padding"] == 784 * 4_096 - 3_207_168


def test_long_and_short_flags_are_one() -> None:
    long = sizes(
        *("config.json", "--tensor-parallel-size", "2", "--kv-cache-dtype", "fp8"),
        *("--num-speculative-tokens", "3", "--mamba-ssm-cache-dtype", "bfloat16"),
    )
    short = sizes("config.json", "--tp", "2", "--kv-dtype", "fp8", "--mtp", "3", "--state-dtype", "bfloat16")
    assert long == short
    assert long["mamba_ssm_cache_dtype"] == "bfloat16"


def test_the_table_has_the_sizes_and_what_to_know() -> None:
    result = run("config.json", "--mtp", "3", "--kv-dtype", "fp8")
    assert result.exit_code == 0
    assert "block size               1,600  tokens, the first multiple of 16 that fits" in result.stdout
    assert "warning: the drafter looks ahead" in result.stdout
    with_none = run("config.json", "--no-enable-prefix-caching")
    assert "never  prefix caching is off" in with_none.stdout


def test_json_on_stdout_is_json_alone() -> None:
    result = run("config.json", "--json", "-")
    assert json.loads(result.stdout)["request"]["state_blocks"] == 6
    assert "block size" in result.stderr
    assert json.loads(run("config.json", "--mamba-cache-mode", "none", "--json", "-").stdout)["hash_unit"] is None


def test_a_scenario_is_written_that_check_passes(here: Path) -> None:
    result = run("config.json", "--mtp", "3", "--scenario", "mine.yaml")
    assert result.exit_code == 0
    assert "mine.yaml: written" in result.stderr
    checked = CliRunner().invoke(main, ["check", "mine.yaml"], prog_name="stateat")
    assert checked.exit_code == 0, checked.output


def test_a_scenario_that_is_there_is_left_alone(here: Path) -> None:
    (here / "mine.yaml").write_text("mine")
    (here / "link.yaml").symlink_to(here / "nothing")
    for name in ("mine.yaml", "link.yaml"):
        said = refused("config.json", "--scenario", name, "--json", "sizes.json")
        assert f"--scenario {name}: it is there already, allowed a new file" in said
    assert (here / "mine.yaml").read_text() == "mine"
    assert not (here / "sizes.json").exists() and not (here / "nothing").exists()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "found no model, allowed a config.json or --model qwen3-next, "),
        (("config.json", "--model", "qwen3-next"), "CONFIG and --model: name one of them"),
        (("nothing.json",), "nothing.json: no such file"),
        (("--model", "qwen"), "--model: found 'qwen', allowed qwen3-next, "),
        (("config.json", "--tp", "5"), "--tensor-parallel-size: found 5, allowed for "),
        (("config.json", "--tp", "-1"), "--tensor-parallel-size: found -1, allowed for "),
        (("config.json", "--kv-dtype", "int4"), "--kv-cache-dtype: found 'int4', allowed auto, bfloat16, "),
        (("config.json", "--state-dtype", "fp8"), "--mamba-ssm-cache-dtype: found 'fp8', allowed auto, float32, "),
        (("config.json", "--mamba-cache-mode", "some"), "--mamba-cache-mode: found 'some', allowed none, align, all"),
        (("config.json", "--preset", "0.33"), "--preset: found '0.33', allowed vllm-0.26.0, "),
        (("config.json", "--speculative-method", "medusa"), "--speculative-method: found 'medusa', allowed mtp, "),
        (("config.json", "--json", "config.json"), "--json config.json: that is the input config.json too"),
        (("config.json", "--max-model-len", "1000000000"), "--max-model-len: found 1000000000, input should be less"),
        (
            ("config.json", "--prefix-match-unit", "100"),
            "--prefix-match-unit: found 100, allowed a divisor of the block",
        ),
        (("config.json", "--block-size", "1048577"), "--block-size: found 1048577, allowed a multiple of 16"),
        (("config.json", "--block-size", "16777216"), "--block-size: found 16777216, input should be less than"),
    ],
)
def test_bad_input_is_refused_in_one_line(args: tuple[str, ...], text: str) -> None:
    assert text in refused(*args)


def test_nothing_is_written_when_something_is_wrong(here: Path) -> None:
    refused("config.json", "--mamba-cache-mode", "none", "--scenario", "mine.yaml", "--json", "sizes.json")
    assert sorted(path.name for path in here.iterdir()) == ["config.json"]


def test_mode_none_takes_any_length(here: Path) -> None:
    assert sizes("--model", "kimi-linear", "--mamba-cache-mode", "none")["mamba_block_size"] == 1_048_576
    assert sizes("config.json", "--mamba-cache-mode", "none", "--max-model-len", "9999999")["block_size"] == 784


def test_the_number_of_the_log_gives_the_pool_with_commas_and_without(here: Path) -> None:
    flags = ("config.json", "--mtp", "3", "--kv-dtype", "fp8")
    for number in ("1,051,504", "1051504"):
        result = run(*flags, "--kv-cache-size-tokens", number, "--scenario", f"{len(number)}.yaml")
        assert result.exit_code == 0, result.output
        assert "num_blocks                 718  blocks; its log: 1,051,504 tokens" in result.stdout
        assert "num_blocks: 718" in (here / f"{len(number)}.yaml").read_text()
    assert sizes(*flags, "--kv-cache-memory-bytes", "40,000,000,000")["kv_cache_size_tokens"] == 1_051_504
    assert sizes(*flags)["num_blocks"] is None
    checked = CliRunner().invoke(main, ["check", "7.yaml"], prog_name="stateat")
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize(
    "number",
    [
        "0",
        "-1",
        "1.5",
        "x",
        "9" * 30,
        "1e9",
        "",
        "1,0,5,1,504",
        ",,,1051504",
        "1051,504",
        "1,051504",
        "1,051,504,",
        "0,504",
    ],
)
def test_what_is_no_number_of_tokens_is_refused(number: str) -> None:
    result = run("config.json", "--kv-cache-size-tokens", number)
    assert result.exit_code == 2 and "allowed a whole number from 1 to" in result.stderr
