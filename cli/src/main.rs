//! The `offhours` binary.

fn main() {}
