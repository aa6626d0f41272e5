#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the package of the commit that is checked out twice, in two folders, in two time zones. Fails if the packages
# differ by a byte.
set -euo pipefail
cd "$(dirname "$0")/.."

commit=$(git rev-parse HEAD)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build FOLDER TIMEZONE: leaves package and binary in $work/FOLDER-*, and nothing else that takes room.
build() {
    local clone=$work/$1/source
    git clone --quiet --no-local . "$clone"
    git -C "$clone" checkout --quiet --detach "$commit"
    if ! (cd "$clone" && env -u CARGO_TARGET_DIR TZ="$2" scripts/deb.sh >"$work/$1.log" 2>&1); then
        tail -n 40 "$work/$1.log" >&2
        return 1
    fi
    mv "$clone"/target/debian/*.deb "$work/$1.deb"
    strip --output-file="$work/$1.bin" "$clone/target/release/rota"
    rm -rf "${work:?}/$1"
}

build one UTC
build a-folder-with-a-longer-name Asia/Kolkata
(cd "$work" && sha256sum ./*.bin ./*.deb)
cmp "$work"/one.bin "$work"/a-folder-with-a-longer-name.bin
cmp "$work"/one.deb "$work"/a-folder-with-a-longer-name.deb
echo "both builds of $commit are the same bytes"
