"""Two machines beside the paper: a table's numbers of the second one after those of the first."""

from t3sim.papers.figure import Table


def side_by_side(table: Table, other: Table, name: str) -> Table:
    """Put another machine's column after each of a table's in which it has something else.

    `other`: the same table of the machine called `name`; a row that it lacks stays empty there.
    """
    theirs = {row[0]: row for row in other.rows}
    nothing = ("–",) * len(table.columns)
    pairs = [(row, theirs.get(row[0], nothing)) for row in table.rows]
    columns: list[tuple[str, list[str]]] = []
    for place, column in enumerate(table.columns):
        columns.append((column, [one[place] for one, _ in pairs]))
        if place and any(one[place] != second[place] for one, second in pairs):
            columns.append((f"{other.columns[place]}, {name}", [second[place] for _, second in pairs]))
    return Table(table.title, tuple(column for column, _ in columns),
                 [tuple(row) for row in zip(*(cells for _, cells in columns))], table.folded)
