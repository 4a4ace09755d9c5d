"""A task of two problems."""

from radmoe.problems import Dataset, Gold, Record

ROWS = [{"id": "small", "a": "2", "b": "3"}, {"id": "large", "a": "40", "b": "2"}]


def ask(record: Record) -> str:
    return f"What is {record.text('a')} + {record.text('b')}? Put it into \\boxed{{}}."


def gold(record: Record) -> Gold:
    return Gold(str(int(record.text("a")) + int(record.text("b"))))


ONE_SUM = Dataset("one-sum", "math", ask, gold, rows=lambda seed: iter(ROWS))
