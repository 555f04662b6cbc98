#!/usr/bin/env bash
# Writes the modules anew from versions.env: run it after a change there, then commit go.mod and go.sum.
# One module per line, because their replace lines clash. Needs the module proxy.
#
#   update.sh            all of them
#   update.sh argocd     those of Argo CD alone
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

# Argo CD works with the versions that its own go.mod replaces by; outside, those lines must be said again.
argocd_modules() {
  local ARGOCD_VERSION own
  for ARGOCD_VERSION in $(known_argocd_versions); do
    describe argocd
    own=$(cd / && go mod download -json "${package%/cmd}@$version" | sed -n 's/.*"GoMod": "\(.*\)",*/\1/p')
    fresh "$module" "$(sed -n '/^replace/,$p' "$own")"
    go get -tool "$package@$version"
  done
}

case ${1:-} in
  argocd)
    argocd_modules
    exit
    ;;
  "") argocd_modules ;;
  *)
    echo "update.sh: unknown word $1 (known: argocd)" >&2
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
