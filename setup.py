"""The packages of `t3sim`: one name in site-packages, while every folder here keeps its own.

The rest is in pyproject.toml, which has no way to say this but a list of every folder.
"""

from setuptools import find_namespace_packages, setup

FOLDERS = {"t3sim": "sim_models", "t3sim.rtl": "rtl", "t3sim.testbenches": "testbenches"}

setup(package_dir=FOLDERS,
      packages=[".".join((package, *inner)) for package, folder in FOLDERS.items()  # folders of data, too
                for inner in ((), *((name,) for name in find_namespace_packages(folder, exclude=["*__pycache__*"])))])
