//! Certificates of the offhours webhook: rotation decision, issuer, store, resolver.
