"""Member templates: values come out right, mistakes name their place, and nobody can ask for too much."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from kbatch.model.template_budget import MOST_SECONDS, MOST_STEPS, MOST_STEPS_TOGETHER, Budget, RefusedTextError
from kbatch.model.template_language import _KEPT, MOST_KEPT, MOST_TEXT
from kbatch.model.templates import TemplateError, render_member

PEERS = ("job-worker-0", "job-worker-1", "job-worker-2")


def render(text: Any, **values: Any) -> Any:
    given: dict[str, Any] = {
        "group": "job",
        "role": "worker",
        "index": 1,
        "size": 3,
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
        ("{{ peers[0] }}:{{ peers[index - 1] }}", "job-worker-0:job-worker-0"),
        ("{{ peers|join(',') }}", ",".join(PEERS)),
        ("{{ peers[:size // 2]|join(',') }}", PEERS[0]),
        ("{{ 'chief' if index == 0 else 'worker' }}", "worker"),
        ("{% if index is odd %}odd{% else %}even{% endif %}", "odd"),
        (
            "{% for p in peers %}{{ p }}:22{% if not loop.last %} {% endif %}{% endfor %}",
            "job-worker-0:22 job-worker-1:22 job-worker-2:22",
        ),
        (
            "{% for p in peers[1:] %}{{ loop.index }}={{ p|upper }};{% endfor %}",
            "1=JOB-WORKER-1;2=JOB-WORKER-2;",
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
    rendered = render_member(template, group="g", role="r", index=0, size=1, namespace="n")
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
        ("{{ peers[3] }}", "peers has no element 3"),
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
            group="g", role="r", index=0, size=1, namespace="n",
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
    with pytest.raises(TemplateError, match=f"more than {MOST_TEXT} characters"):
        render("{{ peers|join(',') }}", size=100_000)
    with pytest.raises(TemplateError, match="in all"):
        render_member(
            {"env": ["{% for p in peers %}" + "x" * 100 + "{% endfor %}"] * 20},
            group="g", role="r", index=0, size=1000, namespace="n",
        )  # fmt: skip


def test_one_peer_of_any_number_costs_one_name() -> None:
    size = 10**12
    assert render("{{ peers[0] }} {{ peers[-1] }} {{ peers|length }}", size=3) == "job-worker-0 job-worker-2 3"
    started = time.process_time()
    with pytest.raises(TemplateError, match="more than 500000 steps"):
        render("{{ peers|last }}", size=size)
    assert render("{{ peers[index] }}", index=size - 1, size=size) == f"job-worker-{size - 1}"
    assert time.process_time() - started < 1.0


def test_slices_are_compared_and_shown_as_lists_of_names_are() -> None:
    assert render("{{ peers[:1] == peers[0:1] }} {{ peers[:2] == peers[1:] }} {{ 'x' in peers }}") == "True False False"
    assert render("{{ peers[1:] }}") == str(PEERS[1:])
    assert json.loads(render("{{ [peers[2:], index]|tojson }}")) == [[PEERS[2]], 1]


# --- budgets ----------------------------------------------------------------------------------------------------------

SIGNS = "{% for p in peers if [" + ",".join(["-+" * 8 + "index"] * 40) + "] == 1 %}{% endfor %}"
"""Less than a thousand characters, and some thousand steps for each peer's visit."""


def test_work_is_bounded_before_it_is_done() -> None:
    started = time.process_time()
    for text in (SIGNS, "{% for p in peers if p == 'q' %}{{ p }}{{ p }}{{ p }}{% endfor %}", "{{ peers|length }}" * 3):
        with pytest.raises(TemplateError, match=f"one member takes more than {MOST_STEPS} steps"):
            render(text, size=1_000_000)
    assert time.process_time() - started < 1.0


def test_members_share_a_budget() -> None:
    budget = Budget()
    for _ in range(2):
        render(SIGNS, size=500, budget=budget)
    with pytest.raises(TemplateError, match=f"{MOST_STEPS_TOGETHER} steps together"):
        render(SIGNS, size=500, budget=budget)


def test_a_budget_says_whether_it_serves_one_more_member() -> None:
    budget, rendered = Budget(), 0
    while budget.serves_another():
        render(SIGNS, size=300, budget=budget)
        rendered += 1
    assert rendered > 1
    cheap = Budget()
    for index in range(200):
        assert cheap.serves_another()
        render("{{ index }} {{ peers[0] }}", index=index, size=1000, budget=cheap)


def test_long_names_cost_more_to_make() -> None:
    text = "{% for p in peers if p == 'q' %}{% endfor %}"
    assert render(text, size=50_000) == ""
    with pytest.raises(TemplateError, match="steps"):
        render(text, size=50_000, role="r" * 10_000)


def test_work_on_long_texts_costs_by_their_length() -> None:
    with pytest.raises(TemplateError, match="steps"):
        render(("{{ peers|join" + "|upper|lower" * 8 + "|length }}") * 15, size=3_000)
    with pytest.raises(TemplateError, match="steps"):
        render("".join("{{ ((peers|join) + (peers|join))|length }}" for _ in range(90)), size=3_000)


def test_compiling_is_paid_for_once() -> None:
    large = "{{ index + 1 + 2 + 3 }}" * 150
    budget = Budget()
    render(large, budget=budget)
    first = MOST_STEPS_TOGETHER - budget.left
    render(large, budget=budget)
    assert MOST_STEPS_TOGETHER - budget.left < first * 1.1
    again = Budget()  # what is kept from before makes no difference
    render(large, budget=again)
    assert MOST_STEPS_TOGETHER - again.left == first
    with pytest.raises(TemplateError, match="steps"):
        render("{{ index + 1 + 2 + 3 }}" * 700)


def test_time_is_bounded_whatever_is_counted() -> None:
    now = [0.0]
    budget = Budget(lambda: now[0])
    assert render("{{ index }}", budget=budget) == "1"
    now[0] = MOST_SECONDS + 0.1
    assert not budget.serves_another()
    with pytest.raises(TemplateError, match="longer than 1 s"):
        render("{{ index }}", budget=budget)


def test_values_without_expressions_cost_something_too() -> None:
    budget = Budget()
    render_member({"list": [None] * 1000}, group="g", role="r", index=0, size=1, namespace="n", budget=budget)
    assert MOST_STEPS_TOGETHER - budget.left >= 1000


def test_what_is_kept_compiled_is_bounded_by_its_length() -> None:
    for number in range(2 * MOST_KEPT // 10_000):
        assert render(f"{number}" + "x" * 10_000 + "{{ index }}").endswith("1")
    assert _KEPT._length <= MOST_KEPT
    assert sum(map(len, _KEPT._texts)) == _KEPT._length


def test_a_budget_refuses_by_its_own_error() -> None:
    with pytest.raises(RefusedTextError):
        Budget().spend(MOST_STEPS_TOGETHER)


def test_a_structure_without_a_floor_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"x": deep}
    with pytest.raises(TemplateError, match="levels"):
        render_member(deep, group="g", role="r", index=0, size=1, namespace="n")
