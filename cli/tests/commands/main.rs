//! The built binary, command by command: exit codes, streams, environment. One module per command.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that breaks off is a test that fails; clippy sees tests only in functions marked so"
)]

mod servers;
mod timeline;

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs `offhours` with arguments, environment and standard input. No variable is inherited.
fn offhours(arguments: &[&str], environment: &[(&str, &str)], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_offhours"))
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
