//! What the demo prints: steps, commands with their real output, and failures.

use std::io::{IsTerminal as _, Stderr, Stdout, Write as _};
use std::time::Instant;

use anyhow::bail;
use harness::{Kubectl, KubectlOutput};

/// The demo's output.
pub struct Transcript {
    started: Instant,
    steps: u32,
    color: bool,
    done: bool,
    out: Stdout,
    err: Stderr,
}

impl Transcript {
    /// Nothing printed yet.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            steps: 0,
            color: std::io::stdout().is_terminal(),
            done: false,
            out: std::io::stdout(),
            err: std::io::stderr(),
        }
    }

    fn line(&self, text: &str) {
        // Nothing is left to do if nobody reads any more.
        let _ = writeln!(self.out.lock(), "{text}");
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Begins a step.
    pub fn step(&mut self, title: &str) {
        self.steps += 1;
        let elapsed = self.started.elapsed().as_secs();
        self.line("");
        self.line(&self.paint("1;36", &format!("== {}. {title}  [{elapsed} s]", self.steps)));
    }

    /// A sentence.
    pub fn say(&self, text: &str) {
        self.line("");
        self.line(text);
    }

    /// Runs a command, shows it with what it printed, and expects success.
    pub async fn run(&self, command: Kubectl) -> anyhow::Result<KubectlOutput> {
        let output = self.show(&command).await?;
        if !output.success {
            bail!(
                "expected `{}` to succeed, and it failed: {}",
                command.line(),
                output.stderr.trim()
            );
        }
        Ok(output)
    }

    /// The same, and expects that it is refused.
    pub async fn run_refused(&self, command: Kubectl) -> anyhow::Result<KubectlOutput> {
        let output = self.show(&command).await?;
        if output.success {
            bail!(
                "expected `{}` to be refused, and it passed: {}",
                command.line(),
                output.stdout.trim()
            );
        }
        Ok(output)
    }

    async fn show(&self, command: &Kubectl) -> anyhow::Result<KubectlOutput> {
        let output = command.output().await?;
        self.line("");
        self.line(&self.paint("1", &format!("$ {}", command.line())));
        for line in output.stderr.lines().chain(output.stdout.lines()) {
            self.line(line);
        }
        Ok(output)
    }

    /// The end, when everything was as expected.
    pub fn done(&mut self) {
        self.done = true;
        let elapsed = self.started.elapsed().as_secs();
        self.line("");
        self.line(&self.paint(
            "1;32",
            &format!("All {} steps were as expected, in {elapsed} s.", self.steps),
        ));
    }

    /// Whether the end was reached.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The end, when something was not.
    pub fn failed(&self, error: &anyhow::Error) {
        let _ = writeln!(
            self.err.lock(),
            "\n{}",
            self.paint("1;31", &format!("The demo failed in step {}: {error:#}", self.steps))
        );
    }

    /// The last lines of a log.
    pub fn tail(&self, log: &str) {
        let lines: Vec<&str> = log.lines().collect();
        let _ = writeln!(self.err.lock(), "\nThe last lines of offhours:");
        for line in lines.iter().skip(lines.len().saturating_sub(25)) {
            let _ = writeln!(self.err.lock(), "  {line}");
        }
    }
}

/// Ends the demo where something is not as it should be.
pub fn check(holds: bool, expected: &str, seen: &str) -> anyhow::Result<()> {
    if holds {
        return Ok(());
    }
    bail!("expected {expected}, and saw:\n{}", seen.trim_end())
}
