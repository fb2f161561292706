#!/bin/sh
# Installs the browsers that `npm run test:browsers` starts, from Debian's own packages. Does nothing where all are there.
set -eu

missing=""
for package in chromium firefox-esr webkit2gtk-driver xvfb; do
  state="$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)"
  [ "$state" = installed ] || missing="$missing $package"
done
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
install() {
  # Unquoted: one word a package.
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends $missing >/dev/null
}
# Lists of packages age: what they name may be gone.
install 2>/dev/null || { apt-get -o DPkg::Lock::Timeout=600 update -qq && install; }
