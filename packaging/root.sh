# shellcheck shell=bash
# A clean root to try things in, and checks that are counted. Sourced behind tools/common.sh, not run; $place is a folder
# for logs.

: "${place:?}"
passed=0
failed=0
root=$(mktemp -d)
chmod 755 "$root"
cleanup_root() {
  if mountpoint -q "$root/proc"; then umount "$root/proc"; fi
  rm -rf "$root"
}
trap cleanup_root EXIT

make_root() { # SUITE PACKAGE,…
  say "Making a clean root ($1)"
  debootstrap --variant=minbase --include="$2" "$1" "$root" "$(debian_archive)" >"$place/try.log" 2>&1 ||
    { tail -n 5 "$place/try.log" >&2; die "debootstrap failed"; }
  mount -t proc proc "$root/proc"
}

CLEAN=(env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8)
inside() { chroot "$root" "${CLEAN[@]}" "$@"; }

check() { # NAME COMMAND…
  local name=$1
  shift
  if "$@" >"$place/try.step" 2>&1; then
    say "ok      $name"
    passed=$((passed + 1))
  else
    cat "$place/try.step" >&2
    say "FAILED  $name"
    failed=$((failed + 1))
  fi
}

sum_up() {
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}
