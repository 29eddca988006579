import pytest

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.engine import build_policy
from tests.unit.engine.worlds import ALLOCATE, EVERYTHING, policy


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("enqueue, reclaim", "enqueue, reclame", ["reclame", "reclaim"]),
        ("name: gang", "name: gong", ["gong", "gang"]),
        ("{name: gang}", "{name: gang, arguments: {size: 3}}", ["size", "gang"]),
        (", {name: proportion}", "", ["reclaim", "proportion"]),
        ("{name: proportion}", "{name: proportion, enableReclaimable: false}", ["reclaim", "victim"]),
        ("{name: priority}", "{name: priority, disablePreemptable: true}", []),
    ],
)
def test_what_cannot_work_is_refused_with_its_line(old: str, new: str, words: list[str]) -> None:
    text = EVERYTHING.replace(old, new)
    assert text != EVERYTHING
    if not words:
        build_policy(parse(text, "file"))  # drf still consents
        return
    with pytest.raises(ConfigurationError) as caught:
        build_policy(parse(text, "file"))
    assert caught.value.line is not None
    for word in words:
        assert word in str(caught.value)


def test_equal_configurations_have_equal_fingerprints() -> None:
    assert policy(EVERYTHING).fingerprint == policy(EVERYTHING + "\n# a comment\n").fingerprint
    assert policy(EVERYTHING).fingerprint != policy(ALLOCATE).fingerprint
    off = EVERYTHING.replace("{name: drf}", "{name: drf, enableJobOrder: false}")
    assert policy(EVERYTHING).fingerprint != policy(off).fingerprint
