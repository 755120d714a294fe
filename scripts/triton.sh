#!/bin/sh
# Gets what benchmarks/serve.py compares with: a Triton Inference Server, in an environment of its
# own under benchmarks/out, and wrk from the system's packages. What is there already is left as it
# is. Where something cannot be installed, says why and fails.
set -u
here=$(dirname "$0")
environment="$here/../benchmarks/out/triton-venv"
project="$here/../.venv"

there_is() { command -v "$1" >/dev/null 2>&1; }

if ! "$environment/bin/python" -c "import pytriton" 2>/dev/null; then
	echo "installing nvidia-pytriton into benchmarks/out/triton-venv" >&2
	rm -rf "$environment"
	mkdir -p "$here/../benchmarks/out"
	"$project/bin/python" -m venv "$environment" &&
		"$environment/bin/python" -m pip install --quiet --disable-pip-version-check "nvidia-pytriton==0.7.0" || {
		echo "nvidia-pytriton could not be installed" >&2
		exit 1
	}
fi

# Its models call the torch and the entmax that the project has: found after its own packages.
site='import sysconfig; print(sysconfig.get_path("purelib"))'
"$project/bin/python" -c "$site" >"$("$environment/bin/python" -c "$site")/project.pth"
"$environment/bin/python" -c "import entmax, torch" || exit 1

if ! there_is wrk; then
	there_is apt-get || {
		echo "no apt-get: install wrk by hand" >&2
		exit 1
	}
	as=""
	[ "$(id -u)" -eq 0 ] || as="sudo -n"
	$as apt-get install -y --no-install-recommends wrk >/dev/null 2>&1 ||
		{ $as apt-get update >/dev/null 2>&1 && $as apt-get install -y --no-install-recommends wrk >/dev/null 2>&1; } || {
		echo "wrk could not be installed" >&2
		exit 1
	}
fi
exit 0
