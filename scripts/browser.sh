#!/bin/sh
# Gets what the tests of the playground need: Chromium and fonts from the system's packages, and
# axe-core from npm. What is there already is left as it is. Where something cannot be installed,
# says why and ends well: the tests then skip with that reason, unless CI is set.
set -u
here=$(dirname "$0")

there_is() { command -v "$1" >/dev/null 2>&1; }

apt_install() {
	if ! there_is apt-get; then
		echo "no apt-get: install $* by hand for the tests of the playground" >&2
		return 1
	fi
	as=""
	if [ "$(id -u)" -ne 0 ]; then
		if ! there_is sudo || ! sudo -n true 2>/dev/null; then
			echo "not root, and no sudo without a password: install $* by hand for the tests of the playground" >&2
			return 1
		fi
		as="sudo -n"
	fi
	echo "installing $*" >&2
	log=$(mktemp)
	# Old lists name versions that are gone: so they are renewed when the first try fails.
	for try in 1 2; do
		if $as env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >"$log" 2>&1; then
			rm -f "$log"
			return 0
		fi
		[ "$try" -eq 2 ] || $as apt-get update >/dev/null 2>&1
	done
	tail -n 5 "$log" >&2
	rm -f "$log"
	return 1
}

there_is chromium || there_is chromium-browser || there_is google-chrome ||
	apt_install chromium fonts-dejavu-core

if [ ! -f "$here/../tests/browser/node_modules/axe-core/axe.min.js" ]; then
	there_is npm || apt_install npm
	if there_is npm; then
		npm ci --silent --no-audit --no-fund --prefix "$here/../tests/browser" ||
			echo "npm could not install axe-core" >&2
	fi
fi
exit 0
