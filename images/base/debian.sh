#!/bin/sh
# Makes the root file system of our own base image out of Debian packages: debian.sh OUT.tar
# aipc runs it where no registry gives an image with Python; the daemon imports the tar and gives it the id that is recorded.
# What is asked for is all that an environment needs below its venv: Python 3.11 that can make one, certificates, and libatomic,
# which Qualcomm's libraries are linked with.
set -eu
exec mmdebstrap --variant=minbase --include=python3,python3-venv,ca-certificates,libatomic1 \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    bookworm "$1"
