//! What the image is built with, for either architecture on either one.

use std::{fs, process::Command};

use anyhow::ensure;
use harness::repository;

fn toolchain(builder: &str, target: &str) -> anyhow::Result<(bool, String)> {
    let output = Command::new(repository().join(".ci/image-toolchain"))
        .args([builder, target])
        .output()?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok((output.status.success(), text))
}

#[test]
fn a_builder_of_either_architecture_has_a_compiler_for_either_one() -> anyhow::Result<()> {
    for (builder, target, triple, packages, linker) in [
        ("amd64", "amd64", "x86_64-unknown-linux-musl", "musl-tools", ""),
        ("arm64", "arm64", "aarch64-unknown-linux-musl", "musl-tools", ""),
        (
            "amd64",
            "arm64",
            "aarch64-unknown-linux-musl",
            "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
            "rust-lld",
        ),
        (
            "arm64",
            "amd64",
            "x86_64-unknown-linux-musl",
            "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
            "rust-lld",
        ),
    ] {
        let (fine, text) = toolchain(builder, target)?;
        ensure!(fine, "{builder} for {target}: {text}");
        for line in [
            format!("target={triple}\n"),
            format!("packages='{packages}'\n"),
            format!("linker={linker}\n"),
        ] {
            ensure!(text.contains(&line), "{builder} for {target}: {line:?} in {text}");
        }
    }
    for (builder, target) in [("amd64", "riscv64"), ("s390x", "amd64"), ("", "")] {
        let (fine, text) = toolchain(builder, target)?;
        ensure!(!fine && text.contains("amd64 and arm64 are known"), "{text}");
    }
    let dockerfile = fs::read_to_string(repository().join("Dockerfile"))?;
    ensure!(
        dockerfile.contains("image-toolchain \"$BUILDARCH\" \"$TARGETARCH\""),
        "{dockerfile}"
    );
    Ok(())
}
