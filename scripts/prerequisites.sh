#!/bin/sh
# Looks for what pip cannot install, and asks for it in one sentence before any work starts.
# Usage: scripts/prerequisites.sh PYTHON   (C++ compiler: $CXX, else g++)
python=${1:-python3}
compiler=${CXX:-g++}
what=
packages=

need() {
    what="$what${what:+, }$1"
    packages="$packages${packages:+ }$2"
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    need "Python 3.11 or newer ('$python' is not; name another with PYTHON=...)" "python3 python3-venv"
elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    need "Python's venv module" "python3-venv"
fi
if ! echo '#include <cstdint>' | $compiler -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
    need "a C++20 compiler ('$compiler' is not; name another with CXX=...)" "g++"
fi

if [ -n "$what" ]; then
    echo "t3: error: missing $what; install with: sudo apt install $packages" >&2
    exit 1
fi
