//! A real Kubernetes control plane on one machine, for tests, demo and benches.
