"""Member templates: values come out right, mistakes name their place, and nobody can ask for too much."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from kbatch.model.templates import MOST_TEXT, TemplateError, render_member

PEERS = ("job-worker-0.job", "job-worker-1.job", "job-worker-2.job")


def render(text: Any, **values: Any) -> Any:
    given: dict[str, Any] = {
        "group": "job",
        "role": "worker",
        "index": 1,
        "size": 3,
        "peers": PEERS,
        "namespace": "team",
        **values,
    }
    return render_member({"spec": {"containers": [{"name": "x", "args": [text]}]}}, **given)["spec"]["containers"][0][
        "args"
    ][0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{{ group }}-{{ role }}-{{ index }}", "job-worker-1"),
        ("--nodes={{ size }} --rank={{ index }} -n {{ namespace }}", "--nodes=3 --rank=1 -n team"),
        ("{{ 8000 + index * 2 }}", "8002"),
        ("{{ peers[0] }}:{{ peers[index - 1] }}", "job-worker-0.job:job-worker-0.job"),
        ("{{ peers|join(',') }}", ",".join(PEERS)),
        ("{{ peers[:size // 2]|join(',') }}", PEERS[0]),
        ("{{ 'chief' if index == 0 else 'worker' }}", "worker"),
        ("{% if index is odd %}odd{% else %}even{% endif %}", "odd"),
        (
            "{% for p in peers %}{{ p }}:22{% if not loop.last %} {% endif %}{% endfor %}",
            "job-worker-0.job:22 job-worker-1.job:22 job-worker-2.job:22",
        ),
        (
            "{% for p in peers[1:] %}{{ loop.index }}={{ p|upper }};{% endfor %}",
            "1=JOB-WORKER-1.JOB;2=JOB-WORKER-2.JOB;",
        ),
        ("{% raw %}{{ not ours }}{% endraw %}", "{{ not ours }}"),
        ("echo ${#array[@]} {{ index }}\n", "echo ${#array[@]} 1\n"),
        ("{{# a note #}}{{ role }}", "worker"),
        ("no expression ${x} %d {#", "no expression ${x} %d {#"),
        ("<{{ role }}>&", "<worker>&"),
    ],
)
def test_values_stand_where_they_are_named(text: str, wanted: str) -> None:
    assert render(text) == wanted


def test_peers_come_out_as_json() -> None:
    assert json.loads(render('{"cluster": {"worker": {{ peers|tojson }}}}')) == {"cluster": {"worker": list(PEERS)}}


def test_only_texts_are_touched_and_nothing_is_shared() -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"{{ role }}": "{{ role }}"}},
        "spec": {"n": 1, "on": True, "none": None, "l": [{}]},
    }
    rendered = render_member(template, group="g", role="r", index=0, size=1, peers=("p",), namespace="n")
    assert rendered == {
        "metadata": {"labels": {"{{ role }}": "r"}},
        "spec": {"n": 1, "on": True, "none": None, "l": [{}]},
    }
    rendered["spec"]["l"][0]["changed"] = True
    assert template["spec"]["l"] == [{}]


def test_a_value_cannot_break_out_of_its_field() -> None:
    assert render("{{ group }}", group='x", "privileged": true, "{{ 1 + 1 }}') == 'x", "privileged": true, "{{ 1 + 1 }}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ indx }}", "'indx' is undefined"),
        ("{{ peers[3] }}", "no element 3"),
        ("{{ index / 2 }}", "//"),
        ("{{ 1 // 0 }}", "zero"),
        ("one\n{% if %}", "line 2"),
        ("{{ index", "unexpected end of template"),
        ("{{ role ~ index }}", "~"),
        ("{{ index < 'a' }}", "not supported"),
        ("{{ index|random }}", "no filter 'random'"),
        ("{% for a in peers %}{% for b in peers %}{% endfor %}{% endfor %}", "loop inside a loop"),
        ("{% for a in peers %}{{ peers|join }}{% endfor %}", "inside a loop"),
        ("{% for a in 'abc' %}{% endfor %}", "goes over peers"),
        ("{% for a in peers recursive %}{% endfor %}", "one variable"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(text)
    assert caught.value.path == "spec.containers[0].args[0]"
    assert message in caught.value.message
    assert str(caught.value) == f"spec.containers[0].args[0]: {caught.value.message}"


def test_the_place_names_keys_that_are_no_words() -> None:
    with pytest.raises(TemplateError) as caught:
        render_member(
            {"metadata": {"annotations": {"a.b/c": "{{ x }}"}}},
            group="g", role="r", index=0, size=1, peers=(), namespace="n",
        )  # fmt: skip
    assert caught.value.path == "metadata.annotations[a.b/c]"


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ peers['count'] }}",
        "{{ peers.count }}",
        "{{ self }}",
        "{{ lipsum() }}",
        "{{ cycler('a') }}",
        "{{ 'x' * 1000000000 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:>999999999}'.format(1) }}",
        "{{ 'x'|center(999999999) }}",
        "{{ 9 ** 999999999 }}",
        "{{ 99999999999999999999 * 99999999999999999999 }}",
        "{{ [1] * 1000000000 }}",
        "{% for i in range(100000) %}{% endfor %}",
        "{% set x = 1 %}",
        "{% macro m() %}{% endmacro %}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% block b %}{% endblock %}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "not " * 3000 + "1 }}",
        "{{ 1" + " + 1" * 3000 + " }}",
        "{{ " + "[" * 60 + "]" * 60 + " }}",
        "{% if 1 %}" * 400 + "{% endif %}" * 400,
        "{{ 1 }}" + "x" * 20_000,
        "{{",
        "{%",
        "{{ }}",
        "{{ \ud800 }}",
        "{{ index|int(base=index) }}",
        "{{ role.__init__.__globals__ }}",
        "{{ loop.index }}",
    ],
)
def test_a_hostile_text_is_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(TemplateError):
        render(text)
    assert time.process_time() - started < 1.0


def test_output_is_bounded() -> None:
    many = tuple(f"host-{n}" for n in range(100_000))
    with pytest.raises(TemplateError, match=f"more than {MOST_TEXT} characters"):
        render("{{ peers|join(',') }}", peers=many)
    with pytest.raises(TemplateError, match="in all"):
        render_member(
            {"env": ["{% for p in peers %}" + "x" * 100 + "{% endfor %}"] * 20},
            group="g", role="r", index=0, size=1, peers=("p",) * 1000, namespace="n",
        )  # fmt: skip


def test_work_is_bounded_before_it_is_done() -> None:
    many = ("p",) * 1_000_000
    with pytest.raises(TemplateError, match="steps"):
        render("{% for p in peers if p == 'q' %}{{ p }}{{ p }}{{ p }}{% endfor %}", peers=many)
    with pytest.raises(TemplateError, match="steps"):
        render("{{ peers|length }}" * 3, peers=many)


def test_a_structure_without_a_floor_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"x": deep}
    with pytest.raises(TemplateError, match="levels"):
        render_member(deep, group="g", role="r", index=0, size=1, peers=(), namespace="n")
