"""A node of GPUs with DMA engines: TOML, with a source per number."""

from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from ..errors import BadInput
from ..machine.section import NotNegative, Positive, Section, Share

#: Nodes that come with the package.
PRESETS = ("mi300x",)


class Link(Section):
    """A link between two GPUs, one direction."""

    bandwidth_gb_per_s: Positive
    engine_efficiency: Share  #: what a DMA engine's packets leave of it
    kernel_efficiency: Share  #: what loads and stores of compute units leave of it


class Memory(Section):
    """A GPU's memory, all accesses together."""

    bandwidth_gb_per_s: Positive


class Host(Section):
    """The one process that commands all engines, and waits for them."""

    command_ns: NotNegative  #: to write a command into a queue
    doorbell_ns: NotNegative  #: to tell an engine
    trigger_ns: NotNegative  #: to set a flag that an engine polls
    observe_ns: NotNegative  #: to see the signal of an engine


class Engine(Section):
    """A DMA engine."""

    fetch_ns: NotNegative  #: from the doorbell to the first command
    copy_ns: NotNegative  #: of the first copy, besides its bytes
    next_copy_ns: NotNegative  #: between copies back to back, which overlap
    sync_ns: NotNegative  #: until its signal is in the host's memory
    poll_ns: NotNegative  #: until it sees a flag that was set
    bandwidth_gb_per_s: Positive  #: of one engine, what it writes


class Protocol(Section):
    """How a library's kernel sends: latency against efficiency."""

    base_ns: NotNegative
    hop_ns: NotNegative
    efficiency: Share


class Kernel(Section):
    """Collectives by kernels on compute units: the library's protocols."""

    ll: Protocol
    ll128: Protocol
    simple: Protocol


class Node(Section):
    """GPUs that are linked each with each other."""

    name: str
    gpus: Annotated[int, Field(ge=2, le=64)]
    engines_per_gpu: Annotated[int, Field(ge=1, le=1024)]
    link: Link
    memory: Memory
    host: Host
    engine: Engine
    kernel: Kernel


def load_node(name_or_path: str) -> Node:
    """Return a node by the name of a preset, or from a TOML file. Raises `BadInput` with the key that is at fault."""
    import tomllib

    shown = repr(name_or_path if len(name_or_path) <= 60 else name_or_path[:57] + "...")
    try:
        if name_or_path in PRESETS:
            text = resources.files(__package__).joinpath("nodes", f"{name_or_path}.toml").read_text("utf-8")
        else:
            text = Path(name_or_path).read_text("utf-8")
        return Node.model_validate(tomllib.loads(text))
    except FileNotFoundError:
        raise BadInput(f"--machine {shown} is neither a file nor one of {', '.join(PRESETS)}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise BadInput(f"--machine {shown}: {'.'.join(map(str, fault['loc']))} = {str(fault.get('input'))[:40]}: "
                       f"{fault['msg'][0].lower()}{fault['msg'][1:]}") from None
    except OSError as error:
        raise BadInput(f"--machine {shown} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"--machine {shown} is not TOML: {str(error)[:80]}") from None
