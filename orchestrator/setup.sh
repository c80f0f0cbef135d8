#!/bin/sh
# Makes .venv out of the locks: `setup.sh host` for what aipc runs on, `setup.sh dev` for what its tests need on top.
# Make calls it when a lock is newer than its stamp. PYTHON may name the interpreter.
set -eu
cd "$(dirname "$0")/.."
began=$(date +%s)

find_python() {
    seen=""
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        # A name on the PATH may be a stub that only prints a hint, so what counts is what it answers.
        version=$("$name" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
        if ! "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            seen="$seen$name is $version, "
        elif ! "$name" -c 'import ensurepip, venv' 2>/dev/null; then
            seen="$seen$name $version lacks its venv module, "
        else
            python=$name
            return
        fi
    done
    seen=${seen%, }
    echo "setup: no Python 3.11 or newer with its venv module was found (${seen:-none at all});" \
        "install one (Debian: apt-get install python3 python3-venv) or name one: make PYTHON=/path/to/python3" >&2
    exit 4
}

install() {
    # Hashes for everything, wheels only: nothing unknown is run while installing.
    .venv/bin/python -m pip install -qq --disable-pip-version-check --no-warn-script-location --no-input "$@"
}

case $1 in
host)
    find_python
    echo "setup: making .venv with Python $version; this happens once" >&2
    "$python" -m venv --clear .venv
    install --require-hashes --no-deps --only-binary :all: -r orchestrator/requirements.lock
    # The build backend is there already, so this needs no network.
    install --no-build-isolation --no-deps --no-index --editable .
    ;;
dev)
    echo "setup: adding what the tests and checks need" >&2
    install --require-hashes --no-deps --only-binary :all: -r tests/requirements.lock
    ;;
*)
    echo "setup: unknown part '$1'; say host or dev" >&2
    exit 2
    ;;
esac
echo "setup: ready after $(($(date +%s) - began)) s" >&2
