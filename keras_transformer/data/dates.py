"""Generated dates in many written forms: a translation task that needs no download."""

import datetime
import itertools
import random

from .records import Examples, Splits, collect

MONTHS = (
    "January February March April May June July August September October November December"
).split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

# The written forms of a date. None is ambiguous: where the digits alone do not distinguish the day
# from the month, the order is stated.
DATE_FORMS = (
    "{month} {day}, {year}",  # April 22, 2019
    "{month} {ordinal}, {year}",  # April 22nd, 2019
    "{month} {day} {year}",
    "{day} {month} {year}",
    "{ordinal} of {month} {year}",  # 22nd of April 2019
    "the {ordinal} of {month}, {year}",
    "{weekday}, {month} {day}, {year}",  # Monday, April 22, 2019
    "{weekday} {day} {month} {year}",
    "{weekday} the {ordinal} of {month} {year}",
    "{short_month} {day}, {year}",  # Apr 22, 2019
    "{day} {short_month} {year}",
    "{short_weekday}, {day:02} {short_month} {year}",  # Mon, 22 Apr 2019
    "{MONTH} {day}, {year}",  # APRIL 22, 2019
    "{day:02}-{SHORT_MONTH}-{year}",  # 22-APR-2019
    "{year}, {month} {day}",
    "{year}-{number:02}-{day:02}",  # 2019-04-22, which is the target itself
    "{year}/{number:02}/{day:02}",
    "{year}.{number:02}.{day:02}",
    "{number:02}/{day:02}/{year} (month/day/year)",
    "{day:02}/{number:02}/{year} (day/month/year)",
    "{day}.{number}.{year} (day.month.year)",  # 22.4.2019
)


def dates(
    num_train: int = 30_000, num_valid: int = 2_000, num_test: int = 2_000, seed: int = 0
) -> Splits:
    """Dates in many written forms, to be translated into one: "April 22, 2019" -> "2019-04-22".

    Each calendar date from the year 1000 to 9999 (Gregorian, also before 1582) is drawn at most
    once, in one random form, so no date of one split is in another.

    Args:
        num_train: int, number of training pairs.
        num_valid: int, number of validation pairs.
        num_test: int, number of test pairs.
        seed: int; the same seed gives the same pairs.

    Returns:
        Splits of Examples.

    Raises:
        ValueError: A number is negative, or their sum exceeds the number of dates.

    Source: Géron, Hands-On Machine Learning, chapter 16, exercise 9.
    Departs: many written forms, where the exercise has one.
    """
    sizes = num_train, num_valid, num_test
    days = range(datetime.date(1000, 1, 1).toordinal(), datetime.date.max.toordinal() + 1)
    if min(sizes) < 0 or sum(sizes) > len(days):
        raise ValueError(
            "num_train, num_valid and num_test must not be negative and sum to at most "
            f"{len(days)} (the days of the years 1000 to 9999); received {sizes}. Choose fewer."
        )
    generator = random.Random(seed)
    drawn = map(datetime.date.fromordinal, generator.sample(days, sum(sizes)))
    pairs = ((write_date(date, generator.choice(DATE_FORMS)), date.isoformat()) for date in drawn)
    return Splits(*(collect(Examples, itertools.islice(pairs, size)) for size in sizes))


def write_date(date: datetime.date, form: str) -> str:
    """The date in one of DATE_FORMS, in English regardless of the locale.

    Args:
        date: `datetime.date`.
        form: str, a format string with day, ordinal, number, month, MONTH, short_month,
            SHORT_MONTH, year, weekday and short_weekday.

    Returns:
        str, e.g. "Monday, April 22, 2019".
    """
    month, weekday = MONTHS[date.month - 1], WEEKDAYS[date.weekday()]
    return form.format(
        day=date.day,
        ordinal=f"{date.day}{_ordinal_suffix(date.day)}",
        number=date.month,
        month=month,
        MONTH=month.upper(),
        short_month=month[:3],
        SHORT_MONTH=month[:3].upper(),
        year=date.year,
        weekday=weekday,
        short_weekday=weekday[:3],
    )


def _ordinal_suffix(day):
    return "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
