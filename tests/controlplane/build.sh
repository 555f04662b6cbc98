#!/usr/bin/env bash
# Builds the programs that tests, demo and benches run on, once per machine, into a cache outside git.
#
#   build.sh [WORD...]           build what is missing (WORD: controlplane (default), all, argocd, flux, keda, or a program's name)
#   build.sh --paths [WORD...]   build nothing; print "program=path" for each, or say what is missing and fail
#
# KUBE_VERSION        the column of versions.env (1.36 or 1.37)
# ARGOCD_VERSION      the column of Argo CD there (3.2 or 2.14)
# KUBEBUILDER_ASSETS  a folder; a program found there is used as it is and not built
# XDG_CACHE_HOME      where the cache lives (default: ~/.cache)
set -euo pipefail

# shellcheck source=programs.sh
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

say() { printf '%s\n' "$*" >&2; }
die() {
  say "controlplane: $1"
  shift
  for line in "$@"; do say "  $line"; done
  exit 1
}

only_paths=false
if [[ ${1:-} == --paths ]]; then
  only_paths=true
  shift
fi
[[ $# -gt 0 ]] || set -- controlplane

if [[ -z $(version_of KUBERNETES) ]]; then
  die "KUBE_VERSION=$KUBE_VERSION is not in $here/versions.env" \
    "known: $(known_versions | paste -sd ' ')"
fi

if [[ -z $(argocd_version) ]]; then
  die "ARGOCD_VERSION=$ARGOCD_VERSION is not in $here/versions.env" \
    "known: $(known_argocd_versions | paste -sd ' ')"
fi

programs=()
for word in "$@"; do
  list=$(programs_of "$word") || die "unknown program $word" "known: controlplane, argocd, flux, keda, $(programs_of all)"
  for program in $list; do
    # one program may come with several words
    [[ " ${programs[*]:-} " == *" $program "* ]] || programs+=("$program")
  done
done

cache=${XDG_CACHE_HOME:-$HOME/.cache}/offhours/controlplane

# path_of PROGRAM: where it is, or is to be. The key is made of all that decides what comes out; raise the recipe's number
# when the flags of `go build` below change.
path_of() {
  if [[ -n ${KUBEBUILDER_ASSETS:-} && -x $KUBEBUILDER_ASSETS/$1 ]]; then
    printf '%s' "$KUBEBUILDER_ASSETS/$1"
    return
  fi
  describe "$1"
  local key
  key=$(cat "$here/$module/go.mod" "$here/$module/go.sum" <(echo "recipe 1 $(uname -sm)$tags") | sha256sum)
  printf '%s' "$cache/$module-${key:0:16}/$1"
}

missing=()
for program in "${programs[@]}"; do
  [[ -x $(path_of "$program") ]] || missing+=("$program")
done

if $only_paths; then
  if [[ ${#missing[@]} -gt 0 ]]; then
    die "not built yet for Kubernetes $KUBE_VERSION: ${missing[*]}" \
      "run: make controlplane$([[ $KUBE_VERSION == "$KUBE_VERSION_DEFAULT" ]] || echo " KUBE_VERSION=$KUBE_VERSION")" \
      "(or: $0 $*)"
  fi
  for program in "${programs[@]}"; do printf '%s=%s\n' "$program" "$(path_of "$program")"; done
  exit 0
fi

if [[ ${#missing[@]} -eq 0 ]]; then
  say "controlplane: Kubernetes $KUBE_VERSION, all ${#programs[@]} programs are there"
  exit 0
fi

command -v go >/dev/null || die "Go is needed to build ${missing[*]}, and is not on PATH" \
  "install Go 1.26 or newer (https://go.dev/doc/install) and try again"

mkdir -p "$cache"
# Two builds at once would do the work twice; the second waits and finds it done.
if command -v flock >/dev/null; then
  exec 9>"$cache/.lock"
  flock -n 9 || {
    say "controlplane: another build is running on this machine; waiting for it"
    flock 9
  }
fi

child=""
log=""
interrupted() {
  [[ -z $child ]] || kill "$child" 2>/dev/null || true
  die "interrupted; what is finished is kept, and the next run goes on from there"
}
trap interrupted INT TERM

started=$SECONDS
number=0
total=${#missing[@]}
for program in "${missing[@]}"; do
  number=$((number + 1))
  path=$(path_of "$program")
  [[ -x $path ]] && continue # built by the run we waited for
  describe "$program"
  module_path=$(module_path_of "$package")
  grep -Eq "^(require)?[[:space:]]*$module_path $version( |$)" "$here/$module/go.mod" ||
    die "$here/$module/go.mod does not hold $module_path $version of versions.env" "run: tests/controlplane/update.sh"

  folder=$(dirname "$path")
  mkdir -p "$folder"
  part=$folder/.$program.$$
  log=$folder/$program.log
  say "controlplane: building $program $version ($number of $total, ${SECONDS}s so far)"
  (cd "$here/$module" && exec go build -trimpath -buildvcs=false -mod=readonly -tags "$tags" -ldflags "-s -w $stamp" -o "$part" "$package") \
    >"$log" 2>&1 9>&- &
  child=$!
  ticks=0
  while kill -0 "$child" 2>/dev/null; do
    sleep 1
    ticks=$((ticks + 1))
    if [[ -t 2 ]]; then
      printf '\r  %s: %ss, in all %ss  %.60s\033[K' "$program" "$ticks" "$((SECONDS - started))" "$(tail -n 1 "$log")" >&2
    elif ((ticks % 20 == 0)); then
      say "  $program: ${ticks}s, in all $((SECONDS - started))s"
    fi
  done
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  if ! wait "$child"; then
    rm -f "$part"
    tail -n 20 "$log" | sed 's/^/  | /' >&2
    die "$program $version could not be built (whole log: $log)" \
      "the first build needs Go 1.26 or newer, a C compiler, about 3 GB of disk, and a Go module proxy (go env GOPROXY) that can be reached"
  fi
  child=""
  mv "$part" "$path"
  rm -f "$log"
done
say "controlplane: Kubernetes $KUBE_VERSION, $total of ${#programs[@]} programs built in $((SECONDS - started))s into $cache"
