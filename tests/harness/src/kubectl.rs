//! kubectl, as people use it.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::process::Program;

/// One call of kubectl, to be run by [`ok`](Self::ok), [`fails`](Self::fails) or [`output`](Self::output).
#[derive(Debug, Clone)]
#[must_use]
pub struct Kubectl {
    pub(crate) program: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) input: String,
}

/// What a call of kubectl gave.
#[derive(Debug, Clone)]
pub struct KubectlOutput {
    /// Whether it ended with 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error: messages of failure, and the warnings of a webhook.
    pub stderr: String,
}

impl KubectlOutput {
    /// The warnings that kubectl showed, without their `Warning: `.
    pub fn warnings(&self) -> Vec<&str> {
        self.stderr
            .lines()
            .filter_map(|line| line.strip_prefix("Warning: "))
            .collect()
    }
}

impl Kubectl {
    /// Text for its standard input (`kubectl apply -f -`).
    pub fn stdin(mut self, input: impl Into<String>) -> Self {
        self.input = input.into();
        self
    }

    /// More arguments.
    pub fn args<S: AsRef<str>>(mut self, arguments: &[S]) -> Self {
        self.arguments
            .extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// A variable of its environment, such as `KUBE_EDITOR`.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Another kubeconfig: another person.
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.kubeconfig = path.into();
        self
    }

    /// What is run, for a transcript.
    pub fn line(&self) -> String {
        format!("kubectl {}", self.arguments.join(" "))
    }

    /// Runs it, whatever comes.
    pub async fn output(&self) -> anyhow::Result<KubectlOutput> {
        let mut program = Program::new(&self.program)
            .args(self.arguments.iter().cloned())
            .arg(format!("--cache-dir={}", self.cache.display()))
            .env("KUBECONFIG", self.kubeconfig.display().to_string());
        for (name, value) in &self.environment {
            program = program.env(name, value);
        }
        let input = self.input.clone();
        let output = tokio::task::spawn_blocking(move || program.run(&input))
            .await
            .context("failed to wait for kubectl")??;
        Ok(KubectlOutput {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs it and expects success.
    pub async fn ok(&self) -> anyhow::Result<KubectlOutput> {
        let output = self.output().await?;
        if !output.success {
            bail!("{} failed: {}{}", self.line(), output.stdout, output.stderr);
        }
        Ok(output)
    }

    /// Runs it and expects that it is refused or fails.
    pub async fn fails(&self) -> anyhow::Result<KubectlOutput> {
        let output = self.output().await?;
        if output.success {
            bail!(
                "{} succeeded, and should not have: {}{}",
                self.line(),
                output.stdout,
                output.stderr
            );
        }
        Ok(output)
    }
}
