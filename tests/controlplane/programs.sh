# shellcheck shell=bash
# Sourced by build.sh and update.sh: which program comes from which module, package and version.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=versions.env
source "$here/versions.env"

KUBE_VERSION=${KUBE_VERSION:-$KUBE_VERSION_DEFAULT}
ARGOCD_VERSION=${ARGOCD_VERSION:-$ARGOCD_VERSION_DEFAULT}

# version_of NAME: the line of the table, for the column that is chosen.
version_of() {
  local column=$1_${KUBE_VERSION//./_}
  printf '%s' "${!column:-${!1:-}}"
}

# argocd_version: the version of Argo CD in the column that is chosen, or nothing.
argocd_version() {
  local column=ARGOCD_${ARGOCD_VERSION//./_}
  printf '%s' "${!column:-}"
}

# The columns of Argo CD, a line each.
known_argocd_versions() {
  sed -n 's/^ARGOCD_\([0-9]*\)_\([0-9]*\)=.*/\1.\2/p' "$here/versions.env"
}

# The columns of the table, a line each.
known_versions() {
  sed -n 's/^KUBERNETES_\([0-9]*\)_\([0-9]*\)=.*/\1.\2/p' "$here/versions.env"
}

# What belongs to which word on the command line.
programs_of() {
  case $1 in
    controlplane) echo etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok ;;
    etcd | kube-apiserver | kube-controller-manager | kube-scheduler | kubectl) echo "$1" ;;
    kwok | helm | kubeconform | helm-unittest | promtool | kustomize-controller | helm-controller) echo "$1" ;;
    # each by itself: some minutes to a quarter of an hour, and only make test-argocd, test-flux, test-keda need them
    argocd) echo argocd ;;
    flux) echo kustomize-controller helm-controller ;;
    keda) echo keda ;;
    all) echo etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok helm kubeconform helm-unittest promtool ;;
    *) return 1 ;;
  esac
}

# describe PROGRAM: sets module (folder), package, version, stamp (a linker flag that tells a program its version) and tags (of the
# build).
describe() {
  stamp="" tags=""
  case $1 in
    etcd)
      module=kubernetes-$KUBE_VERSION package=go.etcd.io/etcd/server/v3 version=$(version_of ETCD) ;;
    kube-apiserver | kube-controller-manager | kube-scheduler | kubectl)
      module=kubernetes-$KUBE_VERSION package=k8s.io/kubernetes/cmd/$1 version=$(version_of KUBERNETES)
      stamp="-X k8s.io/component-base/version.gitVersion=$version" ;;
    kwok)
      module=kwok package=sigs.k8s.io/kwok/cmd/kwok version=$KWOK ;;
    helm)
      module=helm package=helm.sh/helm/v3/cmd/helm version=$HELM ;;
    kubeconform)
      module=kubeconform package=github.com/yannh/kubeconform/cmd/kubeconform version=$KUBECONFORM ;;
    helm-unittest)
      module=helm-unittest package=github.com/helm-unittest/helm-unittest/cmd/helm-unittest version=$HELM_UNITTEST ;;
    promtool)
      # the clients of clouds, which rules do not need, are more than half of it
      module=promtool package=github.com/prometheus/prometheus/cmd/promtool version=$PROMTOOL tags=remove_all_sd ;;
    argocd)
      version=$(argocd_version)
      local major=${version%%.*}
      module=argocd-$ARGOCD_VERSION package=github.com/argoproj/argo-cd/$major/cmd
      stamp="-X github.com/argoproj/argo-cd/$major/common.version=${version#v}" ;;
    kustomize-controller)
      module=kustomize-controller package=github.com/fluxcd/kustomize-controller version=$KUSTOMIZE_CONTROLLER ;;
    helm-controller)
      module=helm-controller package=github.com/fluxcd/helm-controller version=$HELM_CONTROLLER ;;
    keda)
      module=keda package=github.com/kedacore/keda/v2/cmd/operator version=$KEDA ;;
    *) return 1 ;;
  esac
}

# module_path_of PACKAGE: the Go module that holds it.
module_path_of() {
  local path=${1%%/cmd/*}
  printf '%s' "${path%/cmd}"
}
