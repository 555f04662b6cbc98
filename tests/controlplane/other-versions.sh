#!/usr/bin/env bash
# The columns of versions.env besides the chosen one, a line each.
set -euo pipefail

# shellcheck source=programs.sh
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

known_versions | grep -vxF "$KUBE_VERSION"
