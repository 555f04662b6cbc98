#!/usr/bin/env bash
# Prints what `kubectl apply -f` and kustomize take: the chart as it is, rendered into one file, without what only Helm understands.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
helm=$("$here/../tests/controlplane/build.sh" --paths helm | sed 's/^helm=//')
cat <<'YAML'
# Made by manifests/render.sh from the chart; do not edit.
apiVersion: v1
kind: Namespace
metadata:
  name: offhours-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
YAML
"$helm" template offhours "$here/chart" --namespace offhours-system --kube-version 1.33 --no-hooks --set crds.keep=false |
  sed -e '/^# Source: /d' -e '/helm\.sh\//d' -e '/app\.kubernetes\.io\/managed-by: /d'
