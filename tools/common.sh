# shellcheck shell=bash
# shellcheck disable=SC2034  # used by those who source this
# What ./run and ./test share: installing what is missing, building a preset.
# Sourced, not run. Everything here speaks on stderr: stdout belongs to the program.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 125; }

# What the release needs, and what the tests need on top of it.
RELEASE_PACKAGES=(g++ cmake ninja-build libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libzstd-dev zlib1g-dev liblzma-dev libbz2-dev pybind11-dev python3-dev)
TEST_PACKAGES=(libgtest-dev librapidcheck-dev libbenchmark-dev python3 python3-pytest python3-pytest-xdist tmux pkg-config procps psmisc util-linux curl less zstd xz-utils bzip2 git python3-numpy python3-pandas mypy python3-pip python3-venv python3-setuptools python3-wheel scdoc zsh fish)

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Installs those of the named packages that are not there; asks apt nothing when all are.
need() {
  local missing=() sudo=() package log
  if ! command -v dpkg-query >/dev/null; then
    say "This is no Debian or Ubuntu: please see to it that these are installed: $*"
    return 0
  fi
  for package in "$@"; do installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "These packages are missing, and there is neither root nor sudo to install them: ${missing[*]}"
    sudo=(sudo)
  fi
  say "Installing: ${missing[*]}"
  log=$(mktemp)
  # Lists that are already there may do; only where they do not are they fetched anew.
  if ! "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
    if ! { "${sudo[@]}" apt-get update && "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
      tail -n 15 "$log" >&2
      rm -f "$log"
      die "apt could not install: ${missing[*]}"
    fi
  fi
  rm -f "$log"
}

# build PRESET [TARGET…]: configures a preset where that has not been done, then builds it, or only these of it. Silent when
# there is nothing to do, a progress line on a terminal, the whole output on failure.
build() {
  local preset=$1 log status=0
  shift
  mkdir -p build
  log="build/$preset.log"
  if [ ! -f "build/$preset/build.ninja" ]; then
    say "Configuring $preset"
    cmake --preset "$preset" >"$log" 2>&1 || { cat "$log" >&2; die "cmake could not configure the preset '$preset'"; }
  fi
  if [ -t 2 ]; then
    cmake --build --preset "$preset" ${1+--target "$@"} 2>&1 | tee "$log" | while IFS= read -r line; do
      case $line in "["*) printf '\r\033[K%.*s' "$(( ${COLUMNS:-80} - 1 ))" "$line" >&2 ;; esac
    done || status=1
    printf '\r\033[K' >&2
  else
    say "Building $preset"
    cmake --build --preset "$preset" ${1+--target "$@"} >"$log" 2>&1 || status=1
  fi
  [ "$status" = 0 ] || { grep -v '^\[' "$log" >&2 || true; die "the preset '$preset' does not build (all of it: $log)"; }
}

# The Debian archive that this machine's apt uses, for other releases of Debian than its own.
# shellcheck disable=SC2016  # apt's own variable
debian_archive() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' 2>/dev/null | head -n 1; }
