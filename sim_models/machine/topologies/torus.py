"""A 2-D torus: every node is linked with its neighbours in its row and in its column, both of which are rings."""

from dataclasses import dataclass

from t3sim.machine.topologies.topology import Link, Topology, TopologyError


@dataclass(frozen=True)
class Torus(Topology):
    """Nodes in `rows` and `columns`; node number = row * columns + column. Routes go along the row first."""

    rows: int
    columns: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows, self.columns

    def next_hop(self, node: int, destination: int) -> int:
        """Return the next neighbour in dimension order: along the row the shorter way around, then along the column.

        Half-way around a ring both directions are as long: nodes at even positions go up, the others down, so that both
        directions carry the same. Raises TopologyError.
        """
        if node == destination or not (0 <= node < self.nodes and 0 <= destination < self.nodes):
            raise TopologyError(f"{self.name}: no way leads from {node} to {destination}")
        (row, column), (to_row, to_column) = divmod(node, self.columns), divmod(destination, self.columns)
        if column != to_column:
            return row * self.columns + _step(column, to_column, self.columns)
        return _step(row, to_row, self.rows) * self.columns + column


def _step(position: int, to: int, length: int) -> int:
    """Return the next position on a ring."""
    up = (to - position) % length
    shorter_up = 2 * up < length or (2 * up == length and position % 2 == 0)
    return (position + (1 if shorter_up else -1)) % length


def torus(rows: int, columns: int) -> Torus:
    """Build a torus of `rows` times `columns` GPUs; a ring of 2 has one pair of links, a ring of 1 has none."""
    if rows < 1 or columns < 1:
        raise TopologyError(f"torus: {rows} rows and {columns} columns are impossible")
    nodes = [(row, column) for row in range(rows) for column in range(columns)]
    along_rows = (Link(row * columns + column, row * columns + (column + step) % columns)
                  for step in (-1, 1) for row, column in nodes if columns > 1)
    along_columns = (Link(row * columns + column, (row + step) % rows * columns + column)
                     for step in (-1, 1) for row, column in nodes if rows > 1)
    return Torus("torus", rows * columns, tuple(dict.fromkeys((*along_rows, *along_columns))), rows, columns)
