//! End-to-end suites of offhours against a real control plane.
