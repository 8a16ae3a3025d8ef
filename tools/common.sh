# shellcheck shell=bash
# shellcheck disable=SC2034  # used by those who source this
# What ./run and ./test share: installing what is missing, building a preset.
# Sourced, not run. Everything here speaks on stderr: stdout belongs to the program.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 125; }

# What the release needs, what its Python module and lull-serve need on top of it, and what the tests need.
RELEASE_PACKAGES=(g++ cmake ninja-build libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libzstd-dev zlib1g-dev liblzma-dev libbz2-dev)
PYTHON_PACKAGES=(pybind11-dev python3-dev)
SERVE_PACKAGES=(libmicrohttpd-dev)
TEST_PACKAGES=("${PYTHON_PACKAGES[@]}" "${SERVE_PACKAGES[@]}" ccache libgtest-dev librapidcheck-dev libbenchmark-dev python3 python3-pytest python3-pytest-xdist tmux pkg-config procps psmisc util-linux curl less zstd xz-utils bzip2 git python3-numpy python3-pandas mypy python3-pip python3-venv python3-setuptools python3-wheel scdoc zsh fish openssl prometheus)

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Installs those of the named packages that are not there; asks apt nothing when all are.
need() {
  local missing=() sudo=() package log
  if ! command -v dpkg-query >/dev/null; then
    say "This is not Debian or Ubuntu. Please install: $*"
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
  if ! apt_get install -y --no-install-recommends "${missing[@]}"; then
    if ! { apt_get update && apt_get install -y --no-install-recommends "${missing[@]}"; }; then
      tail -n 15 "$log" >&2
      rm -f "$log"
      die "apt could not install: ${missing[*]}"
    fi
  fi
  rm -f "$log"
}

# For need(): another apt may be at work, for up to 10 minutes. apt itself waits for one of its three locks only.
apt_get() {
  local tries
  for ((tries = 0; tries < 120; tries++)); do
    if "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 "$@" >"$log" 2>&1; then return 0; fi
    grep -qE 'Could not get lock|Unable to (lock|acquire)' "$log" || return 1
    sleep 5
  done
  return 1
}

# One line on the terminal of how far a build is, from ninja's "[3/61] …", and how long it may still take.
progress() {
  local line made all left began=$SECONDS
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    made=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]} left=""
    if [ "$made" -ge 3 ] && [ $((SECONDS - began)) -ge 3 ]; then
      left=$(((SECONDS - began) * (all - made) / made))
      left=", about $((left / 60)) min $((left % 60)) s left"
    fi
    printf '\r\033[K%.*s' "$((${COLUMNS:-80} - 1))" "Building $1: $made of $all$left" >&2
  done
  printf '\r\033[K' >&2
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
    cmake --build --preset "$preset" ${1+--target "$@"} 2>&1 | tee "$log" | progress "$preset" || status=1
  else
    say "Building $preset"
    cmake --build --preset "$preset" ${1+--target "$@"} >"$log" 2>&1 || status=1
  fi
  [ "$status" = 0 ] || { grep -v '^\[' "$log" >&2 || true; die "the preset '$preset' does not build (all of it: $log)"; }
}

# The Debian archive that this machine's apt uses, for other releases of Debian than its own.
# shellcheck disable=SC2016  # apt's own variable
debian_archive() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' 2>/dev/null | head -n 1; }
