#!/bin/sh
# Installs the browsers that `npm run test:browsers` starts, from Debian's own packages. Does nothing if all are there in
# the versions below, which the README names, or newer ones. Older ones lack relaxed SIMD or module service workers.
set -eu

wanted="chromium=156 firefox-esr=153 webkit2gtk-driver=2.50 xvfb=2"

# The packages that are not there in the version wanted or a newer one.
find_missing() {
  missing=""
  for each in $wanted; do
    package="${each%%=*}"
    version="$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$package" 2>/dev/null | sed -n 's/^installed //p')"
    dpkg --compare-versions "${version:-0}" ge "${each#*=}" || missing="$missing $package"
  done
}

find_missing
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "Browsers are missing:$missing. This script knows Debian only; install them by hand." >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "Browsers are missing:$missing. Run as root: sh test/browsers/install.sh" >&2
  exit 1
fi

echo "installing from Debian:$missing"
# Lists of packages age: what they name may be gone, or an old version.
apt-get -o DPkg::Lock::Timeout=600 update -qq
# Unquoted: one word a package.
DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends $missing >/dev/null

find_missing
if [ -n "$missing" ]; then
  echo "Debian has no version of$missing that is new enough. Wanted: $wanted" >&2
  exit 1
fi
