#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds rota's Debian package, looks into it, and runs what is in it. Ends with the package's path.
#
# scripts/deb.sh [dev]: with `dev` it packs the program that the tests run, as it was built for them.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${1:-release}
case $profile in
release) built=target/release output=target/debian ;;
dev) built=target/debug output=target/debian-dev ;;
*) echo "usage: scripts/deb.sh [dev]" >&2; exit 2 ;;
esac

# Two builds of one commit have the same times in them.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

cargo deb --version >/dev/null 2>&1 || cargo install --locked --profile dev cargo-deb --version 3.8.0
if [ "$profile" = release ]; then
    # And the same paths, whatever folder they are built in.
    cargo_home=${CARGO_HOME:-$HOME/.cargo}
    export RUSTFLAGS="--remap-path-prefix=$PWD=/usr/src/rota --remap-path-prefix=$cargo_home=/usr/src/cargo"
    export CFLAGS="-ffile-prefix-map=$PWD=/usr/src/rota -ffile-prefix-map=$cargo_home=/usr/src/cargo"
    cargo build --release --locked --package rota
fi
rm -rf target/pages
$built/rota pages target/pages
package=$(cargo deb --quiet --no-build --profile $profile --strip --locked --package rota --output $output/)

# What a package of a daemon has to have, by name.
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
dpkg-deb --extract "$package" "$unpacked"
dpkg-deb --control "$package" "$unpacked/DEBIAN"
for path in usr/bin/rota etc/rota/rota.toml usr/lib/systemd/system/rota.service \
    usr/lib/systemd/system/rota.socket usr/share/doc/rota/copyright \
    usr/share/man/man1/rota.1.gz usr/share/man/man1/rota-up.1.gz usr/share/man/man5/rota.toml.5.gz \
    usr/share/bash-completion/completions/rota usr/share/zsh/vendor-completions/_rota \
    usr/share/fish/vendor_completions.d/rota.fish DEBIAN/postinst DEBIAN/prerm; do
    [ -s "$unpacked/$path" ] || { echo "$package lacks $path" >&2; exit 1; }
done
grep -qx /etc/rota/rota.toml "$unpacked/DEBIAN/conffiles" || { echo "rota.toml is no conffile" >&2; exit 1; }
version=$(dpkg-deb --field "$package" Version)
grep -q "^rota ($version) " packaging/changelog || { echo "packaging/changelog lacks $version" >&2; exit 1; }
if readelf --sections "$unpacked/usr/bin/rota" | grep -q '\.debug_info'; then
    echo "the binary is not stripped" >&2
    exit 1
fi

# systemd would make the folder of the scheduler read-only, and promises would end with the daemon.
if grep -q '^ProtectKernelTunables=yes' "$unpacked/usr/lib/systemd/system/rota.service"; then
    echo "the unit hides /sys/fs/bpf from the daemon" >&2
    exit 1
fi

# What is in it runs, and the configuration that comes with it is right.
"$unpacked/usr/bin/rota" plan --config "$unpacked/etc/rota/rota.toml" >/dev/null
if command -v systemd-analyze >/dev/null; then
    unit=$unpacked/usr/lib/systemd/system/rota.service
    sed "s|/usr/bin/rota|$unpacked/usr/bin/rota|" "$unit" >"$unpacked/rota.service"
    cp "$(dirname "$unit")/rota.socket" "$unpacked"
    systemd-analyze verify --man=no "$unpacked/rota.service" "$unpacked/rota.socket"
else
    echo "SKIPPED: systemd-analyze verify: it is not installed"
fi
if command -v lintian >/dev/null; then
    lintian --fail-on error "$package"
else
    echo "SKIPPED: lintian: it is not installed"
fi

dpkg-deb --info "$package"
dpkg-deb --contents "$package"
echo "$package"
