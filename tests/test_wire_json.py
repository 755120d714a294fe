"""JSON read in pieces is read as any parser would; JSON written in slices is the same text."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import orjson
import pytest

from mappings.errors import ProbmapError
from schemas.errors import InvalidRequest
from service.errors import MalformedBody, TooLarge
from service.settings import Settings
from service.wire import json_text, number_arrays
from service.wire.json_text import JsonText
from service.wire.number_arrays import parse
from service.wire.numbers import Numbers, numbers

SETTINGS = Settings(max_rows=2000, max_elements=400_000)


def plain(value: object) -> object:
    """A parsed value with its lifted arrays as lists again, all numbers as floats."""
    if isinstance(value, Numbers):
        values = [None if number == -np.inf else float(number) for number in value.values]
        if value.lengths is None:
            return values
        stops = np.cumsum(value.lengths).tolist()
        starts = [0, *stops]
        return [values[start:stop] for start, stop in zip(starts, stops, strict=False)]
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return value


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes arrays of 40 bytes long ones, read 64 bytes at a time."""
    monkeypatch.setattr(number_arrays, "LONG_BYTES", 40)
    monkeypatch.setattr(number_arrays, "PIECE_BYTES", 64)


def documents(count: int) -> Iterator[str]:
    """JSON of all shapes, much of it damaged in one or two places."""
    chance = random.Random(20)

    def space() -> str:
        return chance.choice(["", "", "", " ", "\n\t  "])

    def number() -> str:
        return chance.choice(["1", "-2.5", "1e3", "null", "0.1", "12345678901234567"])

    def array(length: int) -> str:
        inside = f"{space()},{space()}".join(number() for _ in range(length))
        return f"[{space()}{inside}{space()}]"

    def rows() -> str:
        lengths = [chance.choice([0, 1, 3, 30]) for _ in range(chance.choice([1, 2, 10]))]
        inside = f"{space()},{space()}".join(map(array, lengths))
        return f"[{space()}{inside}{space()}]"

    def value() -> str:
        kinds: list[Callable[[], str]] = [
            lambda: array(chance.choice([0, 3, 40])),
            rows,
            lambda: '"a\\"[1,2]\\\\"',
            lambda: "true",
            lambda: f'{{"w":{array(30)}}}',
            lambda: f'[{{"ids":{rows()}}},{{"x":1}}]',
            lambda: f"[{array(20)},7]",
        ]
        return chance.choice(kinds)()

    for _ in range(count):
        keys = range(chance.choice([1, 2, 3]))
        text = ",".join(f'"k{key}"{space()}:{space()}{value()}' for key in keys)
        text = "{" + text + "}"
        if chance.random() < 0.7:
            for _ in range(chance.choice([1, 2])):
                place = chance.randrange(len(text))
                damage = chance.random()
                if damage < 0.4:
                    text = text[:place] + text[place + 1 :]
                elif damage < 0.8:
                    text = text[:place] + chance.choice('[]{},:"1 -.etrue') + text[place:]
                else:
                    text = text[: place + 1]
        yield text


@pytest.mark.usefixtures("small_pieces")
def test_bodies_read_in_pieces_are_read_as_by_a_parser() -> None:
    read = refused = 0
    for text in documents(6000):
        try:
            wanted: Any = orjson.loads(text)
        except ValueError:
            wanted = MalformedBody
        try:
            got: Any = plain(parse(bytearray(text.encode()), SETTINGS))
        except MalformedBody:
            got = MalformedBody
        except InvalidRequest:
            # A long array that holds something other than numbers, well-formed or not.
            continue
        if wanted is MalformedBody:
            refused += 1
            assert got is MalformedBody, text
        else:
            read += 1
            assert got == plain(wanted), text
    assert read > 1500
    assert refused > 1500


def test_long_arrays_are_numpy_and_exact() -> None:
    rows = np.random.default_rng(5).standard_normal((30, 3000))
    body = orjson.dumps({"logits": rows, "x": "[1]"}, option=orjson.OPT_SERIALIZE_NUMPY)
    got: Any = parse(bytearray(body), SETTINGS)
    assert isinstance(got["logits"], Numbers)
    assert np.array_equal(got["logits"].padded(0), rows)
    assert got["x"] == "[1]"


def test_a_row_longer_than_a_piece_is_exact() -> None:
    row = np.random.default_rng(6).standard_normal(60_000)
    body = orjson.dumps({"a": [[1], row, []]}, option=orjson.OPT_SERIALIZE_NUMPY)
    assert len(body) > 3 * number_arrays.PIECE_BYTES
    got: Any = parse(bytearray(body), SETTINGS)
    assert got["a"].lengths.tolist() == [1, 60_000, 0]
    assert np.array_equal(got["a"].values[1:], row)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, -3], "int64"),
        ([2**63 - 1, -(2**63)], "int64"),
        ([2**64 - 1, 0], "uint64"),
        ([2**64 - 1, -1], "float64"),
        ([1, 2.5], "float64"),
        ([1, None], "float64"),
        ([], "float64"),
    ],
    ids=str,
)
@pytest.mark.parametrize("times", [1, 20_000])
def test_integers_stay_exact(values: list[Any], kind: str, times: int) -> None:
    body = bytearray(orjson.dumps({"a": values * times}))
    document: Any = parse(body, Settings())
    got = numbers(document["a"], ("a",), Settings())
    assert got.values.dtype == kind
    wanted = [-np.inf if value is None else value for value in values * times]
    assert got.values.tolist() == np.array(wanted, kind).tolist()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "' + "[1,2],{" * 20_000 + '"}',
        '{"a": "' + '\\"[1]' * 20_000 + '"}',
        '{"a": ["' + '","'.join("x" * 90 for _ in range(1000)) + '"]}',
        '{"a": [' + ",".join('{"b": [1, 2]}' for _ in range(9000)) + "]}",
        "{" + ",".join(f'"{key}": [{key}]' for key in range(9000)) + "}",
        '{"a":' + " " * 100_000 + "1}",
    ],
    ids=["brackets in a string", "quotes in a string", "strings", "objects", "keys", "spaces"],
)
def test_large_bodies_without_long_arrays_are_left_to_the_parser(text: str) -> None:
    assert parse(bytearray(text.encode()), Settings()) == json.loads(text)


def test_a_placeholder_cannot_be_forged() -> None:
    text = '{"a": [' + "1," * 50_000 + '1], "b": "0:0", "c": ":0"}'
    got: Any = parse(bytearray(text.encode()), Settings())
    assert (got["b"], got["c"]) == ("0:0", ":0")
    assert len(got["a"].values) == 50_001


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ('{"a": [' + "0," * 400_000 + "0]}", "max_elements"),
        ('{"a": [' + "[0]," * 40_000 + "[0]]}", "max_rows"),
        ('{"a": [' + "[]," * 40_000 + "[]]}", "max_rows"),
        ('{"a": [' + "[0]," * 1500 + "[" + "0," * 40_000 + "0]]}", "max_elements"),
    ],
    ids=["numbers", "rows", "empty rows", "padding"],
)
def test_arrays_over_a_limit_are_refused_with_its_setting(text: str, setting: str) -> None:
    with pytest.raises(TooLarge) as caught:
        parse(bytearray(text.encode()), SETTINGS)
    assert f"PROBMAP_{setting.upper()}" in caught.value.detail
    assert caught.value.detail.startswith("a has")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [' + "{}," * 1_000_000 + "{}]}",
        '{"a": [' + '"",' * 1_000_000 + '""]}',
        '{"a": "' + "x" * 4_000_000,
        '{"a": "' + "\\" * 4_000_000 + '"}',
        '{"a":' + " " * 4_000_000 + "1}",
        '{"a": ' + '{"b":' * 600_000,
    ],
    ids=["objects", "strings", "a string", "backslashes", "spaces", "depth"],
)
def test_bodies_that_are_large_beside_their_arrays_are_refused(text: str) -> None:
    with pytest.raises(TooLarge, match="beside its number arrays"):
        parse(bytearray(text.encode()), Settings())


@pytest.mark.parametrize(
    "text",
    [
        "[" * 3_000_000,
        "[" * 3_000_000 + "]" * 3_000_000,
        '{"a": [' + "[" * 3_000_000 + "1" + "]" * 3_000_000 + "]}",
        '{"a": [' + "1" * 3_000_000 + "]}",
        '{"a": [1' + " " * 3_000_000 + "]}",
        '{"a": [[1' + " " * 3_000_000 + "]]}",
        '{"a": [' + " " * 3_000_000 + "1]}",
        '{"a": [' + "," * 3_000_000 + "]}",
        '{"a": [' + "-" * 3_000_000 + "]}",
        '{"a": [' + "]" * 3_000_000 + "}",
    ],
    ids=[
        *("open", "deep", "deep field", "digits", "spaces", "spaces in a row", "spaces first"),
        *("commas", "signs", "closed"),
    ],
)
def test_hostile_arrays_are_refused(text: str) -> None:
    with pytest.raises(ProbmapError) as caught:
        parse(bytearray(text.encode()), Settings())
    assert len(caught.value.detail) < 300


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("shape", [(3, 5), (2, 50_000), (5000, 7), (1, 1), (0, 4)])
def test_rows_written_in_slices_are_the_text_of_one(shape: tuple[int, int], dtype: type) -> None:
    values: Any = (np.random.default_rng(8).standard_normal(shape) * 1e3).astype(dtype)
    text = JsonText()
    text.rows(values, None, frozenset())
    wanted = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    assert b"".join(text.finished()) == wanted


def test_rows_are_cut_to_their_lengths_and_blank_ones_are_null() -> None:
    text = JsonText()
    text.rows(np.arange(12.0).reshape(3, 4), [4, 1, 2], frozenset({2}))
    assert json.loads(b"".join(text.finished())) == [[0, 1, 2, 3], [4], None]


def test_what_json_cannot_hold_is_null() -> None:
    text = JsonText()
    text.numbers(np.array([np.nan, np.inf, -np.inf, 1e-320, -0.0]))
    assert b"".join(text.finished()) == b"[null,null,null,1e-320,-0.0]"


def test_a_long_text_comes_in_parts_of_about_a_megabyte() -> None:
    text = JsonText()
    values = np.random.default_rng(9).standard_normal(500_000)
    text.numbers(values)
    parts = text.finished()
    slack = 30 * json_text.SLICE_NUMBERS
    assert all(len(part) < json_text.MESSAGE_BYTES + slack for part in parts)
    assert len(parts) > 5
    assert json.loads(b"".join(parts)) == values.tolist()
