//! The product as a process beside the control plane: the built binary, with real flags, signals and logs.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};

use crate::{
    audit::{AUDIT_LOG, forbidden},
    control_plane::ControlPlane,
    identity::Identity,
    process::{Process, Program},
    programs::{repository, target_folder},
};

/// The binary: `OFFHOURS_BIN`, or the one of this target folder, brought up to date by cargo first, so that a test never
/// runs yesterday's.
pub fn offhours_binary() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| find_or_build().map_err(|error| format!("{error:#}")));
    built
        .clone()
        .map_err(|error| anyhow::anyhow!("no offhours binary: {error}"))
}

fn find_or_build() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("OFFHOURS_BIN").map(PathBuf::from) {
        if !path.is_file() {
            bail!("OFFHOURS_BIN={} is not a file", path.display());
        }
        return Ok(path);
    }
    let target = target_folder();
    let release = std::env::current_exe().is_ok_and(|program| program.starts_with(target.join("release")));
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(repository())
        .args(["build", "--quiet", "--bin", "offhours"]);
    cargo.arg("--target-dir").arg(&target);
    if release {
        cargo.arg("--release");
    }
    let output = cargo.output().context("failed to run cargo")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let path = target.join(if release { "release" } else { "debug" }).join("offhours");
    if !path.is_file() {
        bail!("cargo built no {}", path.display());
    }
    Ok(path)
}

/// The product, running. Dropping it kills it.
///
/// Its log is `<name>-<n>.log` in the control plane's folder.
#[derive(Debug)]
pub struct Product {
    process: Process,
    /// The audit log, and where it ended when this was started; `None`: the test itself judges what is forbidden.
    audit: Option<(PathBuf, u64)>,
}

impl Drop for Product {
    /// A call that the product's roles forbid is a fault that a test may not have looked for.
    #[allow(clippy::panic, reason = "only tests have products, and this fails the test")]
    fn drop(&mut self) {
        if let Some((path, from)) = &self.audit
            && !std::thread::panicking()
        {
            let found = forbidden(path, *from);
            assert!(found.is_empty(), "the roles of the product forbid {found:#?}");
        }
    }
}

impl Product {
    /// Starts `offhours` with these arguments and variables, as `who`. Variables of this process that would configure the
    /// product are not handed on.
    pub fn start(
        plane: &ControlPlane,
        who: &Identity,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        Self::start_with(plane, &plane.kubeconfig_for(who)?, arguments, environment)
    }

    /// Leaves it to the test what may be forbidden: Helm takes roles away before pods have ended.
    #[must_use]
    pub fn with_roles_that_end(mut self) -> Self {
        self.audit = None;
        self
    }

    /// As [`Self::start`], with a kubeconfig such as that of a [`crate::Proxy`].
    pub fn start_with(
        plane: &ControlPlane,
        kubeconfig: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let name = arguments.first().copied().unwrap_or("offhours");
        let mut program = Program::new(offhours_binary()?)
            .args(arguments.iter().copied())
            .env("KUBECONFIG", kubeconfig.display().to_string());
        // As in a pod outside: nothing of this shell, and no account that is mounted somewhere.
        for stray in ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "RUST_LOG"] {
            program.environment.push((stray.to_owned(), None));
        }
        for (name, value) in environment {
            program = program.env(*name, *value);
        }
        Self::start_program(plane, name, &program)
    }

    /// Starts any program beside the control plane, with its log in the same folder.
    pub fn start_program(plane: &ControlPlane, name: &str, program: &Program) -> anyhow::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let log = plane
            .folder()
            .join(format!("{name}-{}.log", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let audit = plane.folder().join(AUDIT_LOG);
        let end = std::fs::metadata(&audit).map_or(0, |log| log.len());
        Ok(Self {
            process: Process::start(name, program, log)?,
            audit: Some((audit, end)),
        })
    }
}

impl std::ops::Deref for Product {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

/// `GET http://127.0.0.1:<port><path>`: status and body. For probes and metrics of the product.
pub async fn http_get(port: u16, path: &str) -> anyhow::Result<(u16, String)> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut stream =
            TcpStream::connect(("127.0.0.1", port)).with_context(|| format!("failed to connect to port {port}"))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(
            stream,
            "GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = Vec::new();
        stream
            .read_to_end(&mut answer)
            .with_context(|| format!("failed to read the answer of port {port}"))?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .context("the answer has no end of its head")?;
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .context("the answer has no status")?;
        Ok((status, body.to_owned()))
    })
    .await?
}
