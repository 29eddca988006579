"""The form of an attack: what is tried, what must come of it, and how to try it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.tenant.tenant import Tenant

Act = Callable[["Tenant"], object]


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server, or whoever is asked, refuses with this status, and these words in its reason."""

    status: int
    says: str

    def __str__(self) -> str:
        return f"refused ({self.status}): {self.says}"


@dataclass(frozen=True, slots=True)
class Harmless:
    """It may be done. `because` says what keeps it from harm, and is what the attack itself looks at."""

    because: str

    def __str__(self) -> str:
        return f"harmless: {self.because}"


@dataclass(frozen=True, slots=True)
class Attack:
    """One entry of the list.

    Attributes:
        name: in kebab case, once in the list.
        area: the heading that it stands under.
        tries: what the tenant tries, as a phrase.
        outcome: what must come of it.
        act: tries it. Where the outcome is `Refused` it raises ApiError; else it asserts what `because` says.
    """

    name: str
    area: str
    tries: str
    outcome: Refused | Harmless
    act: Act


class Area:
    """Collects the attacks of one heading, in the order in which they are written."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.attacks: list[Attack] = []

    def refused(self, status: int, says: str, tries: str) -> Callable[[Act], Act]:
        """The decorated function is to be refused."""
        return self._add(tries, Refused(status, says))

    def harmless(self, because: str, tries: str) -> Callable[[Act], Act]:
        """The decorated function does something, and looks at what came of it."""
        return self._add(tries, Harmless(because))

    def _add(self, tries: str, outcome: Refused | Harmless) -> Callable[[Act], Act]:
        def keep(act: Act) -> Act:
            name = getattr(act, "__name__", "").strip("_").replace("_", "-")
            self.attacks.append(Attack(name, self.title, tries, outcome, act))
            return act

        return keep


def table(attacks: Iterable[Attack]) -> str:
    """The attacks as a page has them: a table under each heading."""
    lines: list[str] = []
    area = ""
    for attack in attacks:
        if attack.area != area:
            area = attack.area
            lines += ["", f"### {area}", "", "| attack | what is tried | what comes of it |", "|---|---|---|"]
        outcome = str(attack.outcome).replace("|", r"\|")
        lines.append(f"| `{attack.name}` | {attack.tries} | {outcome} |")
    return "\n".join(lines[1:]) + "\n"
