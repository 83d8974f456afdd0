"""Writes docs/settings.md, events.md, metrics.md.

`python -m cormorant.reference > docs/metrics.md` writes the last of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import attrs

from cormorant.rules import events
from cormorant.rules.events import Event
from cormorant.rules.jobs import events as job_events
from cormorant.rules.jobs.events import JobEvent
from cormorant.rules.search import events as search_events
from cormorant.rules.settings.keys import KnownSetting, known_settings, variable_of
from cormorant.rules.settings.settings import Settings
from cormorant.rules.watch import events as watch_events
from cormorant.rules.watch import feeds, prices
from cormorant.web.metrics import METRICS

__all__ = ["all_events", "events_reference", "metrics_reference", "settings_reference"]

_SETTINGS_INTRODUCTION = """\
# Every setting

*Made by `python -m cormorant.settings > docs/settings.md`; a test compares.*

Settings stand in `config.toml`; the environment wins over the file. `key = …` under `[table]` is written here as
`table.key`. In the environment a setting is called `CORMORANT_` and its key in capitals with `__` for each dot; an empty
variable counts as not set. Some settings have an older name besides; our own wins, and bare numbers in an older one count
in the unit shown.

- Durations are numbers with units (`ms`, `s`, `m`, `h`, `d`, `w`): `"10s"`, `"1h 30m"`.
- Sizes: `"100 MB"` (thousands) or `"64 MiB"` (1024s). Shares: `"25%"`.
- A secret is text, `{ env = "NAME" }` for a variable of the environment, or `{ file = "PATH" }`. It is never shown or logged.
- A relative path counts from the folder of the settings file, wherever the path is written.
- `NAME` is a name of your choice: 1 to 40 lower-case letters, digits, `-` and `_`, a letter first. `sources.NAME.per_day` is
  `per_day` under `[sources.redacted]`, and `CORMORANT_SOURCES__REDACTED__PER_DAY` in the environment, where `-` is written
  `_`. The environment refines the tables that the file names, it adds none.
- A source has the limits that its `limits` names: the built-in `default` or `private`, or a `[limits.NAME]` of your own. A table
  `[limits.private]` refines the built-in one, and what a source sets itself wins.

What is wrong is told all at once at the start, and nothing is changed. Unknown keys are refused.
"""

_EVENTS_INTRODUCTION = """\
# Every event

*Made by `python -m cormorant.log > docs/events.md`; a test compares.*

The log, `service.events()` and the metrics use these names. In a log line `ts`, `level` and `event` come first, then the
fields in this order. A line that tells of an error that was raised ends with `trace`: where it came from, cut in the middle
when it is long, without secrets.
"""


_METRICS_INTRODUCTION = """\
# Every metric

*Made by `python -m cormorant.reference > docs/metrics.md`; a test compares.*

`GET /metrics` gives them to Prometheus, with the key of the API (`X-Api-Key`, or `Authorization: Bearer …`), or to everybody with
`web.metrics_open = true`. Each process has its own; what is in the database (queue, quota) is the same in all of them. While
the database is away, what is looked up there is left out.

    scrape_configs:
      - job_name: cormorant
        authorization: { credentials_file: /path/to/web.key }
        static_configs: [{ targets: ["127.0.0.1:7979"] }]
"""


def metrics_reference() -> str:
    """The page of all metrics."""
    rows = [(f"`{each.name}`", each.kind, ", ".join(each.labels), each.meaning) for each in METRICS]
    return f"{_METRICS_INTRODUCTION}\n{_table(('metric', 'type', 'labels', 'meaning'), rows)}"


def settings_reference() -> str:
    """The page of all settings."""
    rows = [_setting_row(known) for known in known_settings(Settings())]
    return f"{_SETTINGS_INTRODUCTION}\n{_table(('key', 'environment', 'default', 'allowed', 'meaning'), rows)}"


def events_reference() -> str:
    """The page of all events."""
    rows = [_event_row(event) for event in all_events()]
    return f"{_EVENTS_INTRODUCTION}\n{_table(('event', 'level', 'fields', 'meaning'), rows)}"


def all_events() -> list[type[Event]]:
    """Every kind of event that Cormorant itself tells about, by name."""
    # Not __subclasses__: it also holds what attrs replaced and the collector has not taken away yet.
    rooms = (events, job_events, prices, search_events, feeds, watch_events)
    known = [each for room in rooms for each in vars(room).values()]
    classes = {each for each in known if isinstance(each, type) and issubclass(each, Event)}
    return sorted(classes - {Event, JobEvent}, key=lambda event: event.name)


def _setting_row(known: KnownSetting) -> tuple[str, ...]:
    older = [f"`{alias.name}`{f' ({alias.unit})' if alias.unit else ''}" for alias in known.setting.aliases]
    variables = [f"`{variable_of(known.key)}`", *older]
    default = "not set" if known.default is None else f"`{known.setting.kind.write(known.default)}`"
    allowed, meaning = known.setting.allowed(), known.setting.meaning
    return (f"`{known.key}`", ", ".join(variables), default, allowed, meaning)


def _event_row(event: type[Event]) -> tuple[str, ...]:
    fields = ", ".join(field.name for field in attrs.fields(event))
    return (f"`{event.name}`", event.level, fields, _first_sentence(inspect.getdoc(event) or ""))


def _first_sentence(text: str) -> str:
    first = " ".join(text.partition("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".") + "."


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(metrics_reference(), end="")  # noqa: T201  # printing is what this is for
