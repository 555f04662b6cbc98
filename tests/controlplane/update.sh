#!/usr/bin/env bash
# Writes the modules anew from versions.env: run it after a change there, then commit go.mod and go.sum.
# One module per line, because their replace lines clash. Needs the module proxy.
#
#   update.sh                all of them
#   update.sh argocd         those of Argo CD alone
#   update.sh flux, keda     the same
set -euo pipefail

# shellcheck source=programs.sh
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

# fresh FOLDER [REPLACE-LINES]: an empty module
fresh() {
  echo "== $1"
  mkdir -p "$here/$1"
  cd "$here/$1"
  rm -f go.mod go.sum
  printf 'module offhours.invalid/controlplane/%s\n\ngo 1.26.0\n' "$1" >go.mod
  [[ -z ${2:-} ]] || printf '\n%s\n' "$2" >>go.mod
}

# own_lines MODULE VERSION: what its go.mod replaces and excludes; outside, those lines must be said again. Folders of its own
# are modules with versions, outside.
own_lines() {
  local own
  own=$(cd / && go mod download -json "$1@$2" | sed -n 's/.*"GoMod": "\(.*\)",*/\1/p')
  awk '/^(replace|exclude) \($/ { block = 1 }
    /^(replace|exclude) / || block { if (!/=> \.\//) print }
    /^\)/ { block = 0 }' "$own"
}

argocd_modules() {
  local ARGOCD_VERSION
  for ARGOCD_VERSION in $(known_argocd_versions); do
    alone argocd
  done
}

# alone PROGRAM...: a module with the lines of its own go.mod
alone() {
  local program
  for program in "$@"; do
    describe "$program"
    fresh "$module" "$(own_lines "$(module_path_of "$package")" "$version")"
    go get -tool "$package@$version"
  done
}

case ${1:-} in
  argocd)
    argocd_modules
    exit
    ;;
  flux | keda)
    # shellcheck disable=SC2046
    alone $(programs_of "$1")
    exit
    ;;
  "")
    argocd_modules
    # shellcheck disable=SC2046
    alone $(programs_of flux) $(programs_of keda)
    ;;
  *)
    echo "update.sh: unknown word $1 (known: argocd, flux, keda)" >&2
    exit 1
    ;;
esac

for KUBE_VERSION in $(known_versions); do
  kubernetes=$(version_of KUBERNETES)
  # k8s.io/kubernetes replaces its staging modules by folders of its own; outside, each has a version of the same number.
  own=$(cd / && go mod download -json "k8s.io/kubernetes@$kubernetes" | sed -n 's/.*"GoMod": "\(.*\)",*/\1/p')
  replaces=$(sed -n 's/^[[:space:]]*\(k8s\.io\/[a-z-]*\) => \.\/staging.*/\1/p' "$own" |
    while read -r staging; do echo "	$staging => $staging v0.${kubernetes#v1.}"; done)
  fresh "kubernetes-$KUBE_VERSION" "replace (
$replaces
)"
  wanted=()
  for program in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    describe "$program"
    wanted+=("$package@$version")
  done
  go get -tool "${wanted[@]}"
done

for program in kwok helm kubeconform helm-unittest promtool; do
  describe "$program"
  replaces=""
  # its own fork, which it names only in its own go.mod
  [[ $program != helm-unittest ]] ||
    replaces="replace github.com/vmware-labs/yaml-jsonpath v0.3.2 => github.com/helm-unittest/yaml-jsonpath v0.4.0"
  fresh "$module" "$replaces"
  go get -tool "$package@$version"
done
