#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Prints the mirror of this release's main archive, as apt itself understands its configuration.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/os-release
# shellcheck disable=SC2016 # apt expands it
uri=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' | sed -n "s/^$VERSION_CODENAME //p" | head -n 1)
if [ -z "$uri" ]; then
    echo "no mirror for $VERSION_CODENAME in apt's configuration: mend /etc/apt/sources.list" >&2
    exit 1
fi
echo "$uri"
