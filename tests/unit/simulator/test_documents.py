from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from kbatch.simulator import documents
from kbatch.simulator.documents import Document, parse, read
from kbatch.simulator.errors import InputError, Place


def contents(text: str, source: str = "a.yaml") -> list[object]:
    return [document.content for document in parse(text, source)]


def test_documents_are_numbered_and_empty_ones_count() -> None:
    assert list(parse("kind: A\n---\n# nothing\n---\nkind: B\n", "a.yaml")) == [
        Document(Place("a.yaml", 1), {"kind": "A"}),
        Document(Place("a.yaml", 3), {"kind": "B"}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "A"}',
        '{"kind": "A"}\n{"kind": "B"}',
        ' {"kind": "A"} ',
        "{kind: A}",
        '{"kind": "A"}\n---\n{"kind": "B"}',
    ],
)
def test_json_flows_and_several_of_them(text: str) -> None:
    assert [content["kind"] for content in contents(text)] == ["A", "B"][: text.count("kind")]  # type: ignore[index]


@pytest.mark.parametrize(
    "text",
    [
        "a: {b: [x, 1, '1', 1.5, yes, ~, null, true, .inf, -3, +3, 0, 00, 010, 0x1F, 1_000, 1:30]}",
        "a: [12345678901234567890, 08, 1e3, 1.e+3]",
        "a:\n- b:\n  - - c\n    - []\n  d: {}\n",
        "a: !!str 1\nb: !!int '7'\nc: !!float 3\nd: !!set {x, y}\ne: !!binary aGVsbG8=\n",
        "1: a\nb: 2\n",
        "true: a\n~: b\n",
        "a: 2026-01-01\n",
        "a: {<<: {p: 1}, q: 2}",
        "!!map {a: 1}",
        "a: |\n  one\n  two\nb: >-\n  three\n",
    ],
)
def test_what_is_plain_is_read_as_the_constructors_of_pyyaml_read_it(text: str) -> None:
    loader = documents._Loader(text)
    try:
        expected = loader.construct_document(loader.get_single_node())
    finally:
        loader.dispose()
    (read,) = contents(text)
    assert read == expected
    assert repr(read) == repr(expected)


@pytest.mark.parametrize(
    "text", ["a: !!str {b: 1}", "a: !!map b", "a: !!seq {b: c}", "a: !!str [b]", "a: {[b]: c, d: e}"]
)
def test_a_tag_of_another_kind_of_value_is_no_plain_one(text: str) -> None:
    with pytest.raises(InputError):
        contents(text)


def test_a_time_stays_text() -> None:
    assert contents("at: 2026-01-01T00:00:00Z") == [{"at": "2026-01-01T00:00:00Z"}]


def test_anchors_and_merge_keys_are_understood() -> None:
    assert contents("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}") == [{"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}}]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [", r"a.yaml, document 1: is not YAML: .* \(line 2, column 1\)"),
        ("a: 1\n---\nb: {", r"a.yaml, document 2: is not YAML: .*line 4"),
        ("a: 1\nb: 2\na: 3\n", r"a.yaml, document 1: is not YAML: the key 'a' stands twice \(line 3, column 1\)"),
        ("just text", r"a.yaml, document 1: expected an object with apiVersion and kind, got text"),
        ("[1, 2]", r"document 1: expected an object .*, got a list"),
        ("a: !!python/object:os.system x", r"is not YAML: could not determine a constructor"),
        ("a: \x07", r"is not YAML"),
        ("[" * 10000, r"is not YAML: nested too deeply"),
        ("a: " + "{b: " * 10000, r"is not YAML: nested too deeply"),
        ("- " * 10000 + "a", r"is not YAML: nested too deeply"),
    ],
)
def test_what_cannot_be_read_says_where(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        contents(text)


@pytest.mark.parametrize(("innermost", "levels"), [("[]", 1), ("{}", 1), ("[{}]", 2), ("{a: []}", 2)])
def test_brackets_may_be_nested_so_deeply_and_no_deeper(innermost: str, levels: int) -> None:
    def nested(depth: int) -> str:
        around = depth - levels
        return f"a: {'[' * around}{innermost}{']' * around}"

    assert len(contents(nested(500))) == 1
    with pytest.raises(InputError, match=r"is not YAML: nested too deeply"):
        contents(nested(501))


def test_a_json_file_that_is_not_json_is_told_so() -> None:
    with pytest.raises(InputError, match=r"a.json, document 1: is not JSON: .*\(line 1, column 14\)"):
        contents('{"kind": "A" "B"}', "a.json")


def test_folders_are_read_sorted_with_all_below(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.yaml", "a.json", "sub/c.yml", "notes.txt"):
        (tmp_path / name).write_text('{"kind": "A"}')
    found = [document.place.source for document in read([str(tmp_path)])]
    assert found == [str(tmp_path / name) for name in ("a.json", "b.yaml", "sub/c.yml")]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"kind: A\n")))
    assert [str(document.place) for document in read(["-"])] == ["standard input, document 1"]


def test_paths_that_are_not_there_or_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.yaml: there is no such file or folder"):
        list(read([str(tmp_path / "nothing.yaml")]))
    with pytest.raises(InputError, match=r"the folder holds no .yaml, .yml or .json file"):
        list(read([str(tmp_path)]))
    (tmp_path / "x.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(InputError, match=r"x.yaml: is no UTF-8 text \(byte 3\)"):
        list(read([str(tmp_path / "x.yaml")]))


def test_aliases_that_multiply_are_refused_at_once() -> None:
    levels = "".join(f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 400))
    with pytest.raises(InputError, match=r"a.yaml, document 1: is not YAML: its aliases stand for more than 1000000"):
        contents("a0: &a0 [x]\n" + levels)


def test_merged_keys_that_multiply_are_refused_at_once() -> None:
    levels = "".join(f"a{level}: &a{level} {{<<: [{','.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, 30))
    with pytest.raises(InputError, match="its aliases stand for more than"):
        contents("a0: &a0 {x: 1}\n" + levels)


@pytest.mark.parametrize("text", ["a: &a {b: *a}", "a: &a [[*a]]", "&a {b: {c: *a}}"])
def test_an_alias_for_what_it_is_part_of_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"an alias stands for what it is part of \(line 1\)"):
        contents(text)


def test_aliases_that_save_writing_are_taken() -> None:
    shared = "shared: &s {cpu: 4, more: [1, 2, 3]}\nlist:\n" + "- *s\n" * 1000
    content = contents(shared)[0]
    assert isinstance(content, dict)
    assert content["list"] == [{"cpu": 4, "more": [1, 2, 3]}] * 1000


def test_a_file_too_large_to_be_meant_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbatch.simulator.documents._MOST_BYTES", 1 << 20)
    path = tmp_path / "large.yaml"
    path.write_text("a: " + "x" * (1 << 20))
    with pytest.raises(InputError, match=r"large.yaml: is larger than 1 MiB; give it in several files"):
        list(read([str(path)]))


def test_many_json_documents_are_read_in_one_pass() -> None:
    assert len(contents('{"kind": "A"}\n' * 50_000)) == 50_000
