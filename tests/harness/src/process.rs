//! Child processes that die with their owner.
//!
//! Linux sends a child its parent-death signal when the *thread* that started it ends, and a test's thread ends with the
//! test. So every child is started by one thread that lives as long as the process. The signal is set by `setpriv`
//! (util-linux), because setting it between fork and exec needs `unsafe`; a shell then checks that the owner had not
//! died before the signal was set, and becomes the program.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, kill_process};

pub use rustix::process::Signal;

use crate::{product::http_get, wait::wait_for};

type Job = Box<dyn FnOnce() + Send>;

/// Runs a job on the thread that never ends.
fn on_spawner<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            while let Ok(job) = receiver.recv() {
                job();
            }
        });
        sender
    });
    let (reply, answer) = mpsc::channel();
    spawner
        .send(Box::new(move || {
            // The other side waits for exactly this.
            let _ = reply.send(job());
        }))
        .map_err(|_| anyhow::anyhow!("the thread that starts processes has ended"))?;
    answer
        .recv()
        .context("failed to hear from the thread that starts processes")
}

/// What to start.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Environment on top of (or, with `None`, removed from) that of this process.
    pub environment: Vec<(String, Option<String>)>,
    /// Its working directory; by default that of this process.
    pub directory: Option<PathBuf>,
}

impl Program {
    /// A program without arguments.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), Some(value.into())));
        self
    }

    /// A command that dies with this process.
    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--pdeathsig",
                "KILL",
                "--",
                "sh",
                "-c",
                r#"[ "$PPID" = "$0" ] || exit 125; exec "$@""#,
            ])
            .arg(std::process::id().to_string())
            .arg(&self.path)
            .args(&self.arguments);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    fn spawn(&self, mut command: Command) -> anyhow::Result<Child> {
        on_spawner(move || command.spawn())?.with_context(|| {
            format!(
                "failed to start {} by setpriv of util-linux (is it installed?)",
                self.path.display()
            )
        })
    }

    /// Runs it to its end, with `input` on its standard input. Blocks.
    pub fn run(&self, input: &str) -> anyhow::Result<std::process::Output> {
        let mut command = self.command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.spawn(command)?;
        let feeder = child.stdin.take().map(|mut stdin| {
            let input = input.to_owned();
            // A program that does not read its input closes the pipe: its own affair.
            std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())))
        });
        let output = child
            .wait_with_output()
            .with_context(|| format!("failed to wait for {}", self.path.display()))?;
        if let Some(feeder) = feeder {
            drop(feeder.join());
        }
        Ok(output)
    }
}

/// A running program whose output goes to a file. Dropping it kills it and waits for it.
pub struct Process {
    name: String,
    log: PathBuf,
    pid: u32,
    child: Mutex<Child>,
}

impl Process {
    /// Starts a program; what it prints is appended to `log`.
    pub fn start(name: impl Into<String>, program: &Program, log: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let (name, log) = (name.into(), log.into());
        let open = || {
            File::options()
                .create(true)
                .append(true)
                .open(&log)
                .with_context(|| format!("failed to open {}", log.display()))
        };
        let mut command = program.command();
        command.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        let child = program.spawn(command)?;
        Ok(Self {
            name,
            log,
            pid: child.id(),
            child: Mutex::new(child),
        })
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name it was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Where its output is.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// All that it has printed so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How it ended; `None` while it runs.
    pub fn exited(&self) -> anyhow::Result<Option<ExitStatus>> {
        self.child()
            .try_wait()
            .with_context(|| format!("failed to look after {}", self.name))
    }

    /// An error with the end of its log, if it runs no more.
    pub fn check_running(&self) -> anyhow::Result<()> {
        match self.exited()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended ({status}): {}\nwhole log: {}",
                self.name,
                self.tail(1500),
                self.log.display()
            ),
        }
    }

    /// The last `bytes` of its log.
    fn tail(&self, bytes: u64) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        read().unwrap_or_default()
    }

    /// Sends it a signal: `Signal::TERM`, `Signal::STOP`, `Signal::CONT`.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        // Held so that nobody waits for it meanwhile: its number cannot pass to another process.
        let mut child = self.child();
        if child.try_wait()?.is_some() {
            bail!("{} has ended already", self.name);
        }
        let pid = Pid::from_raw(i32::try_from(self.pid)?).context("a child has a process id")?;
        kill_process(pid, signal).with_context(|| format!("failed to signal {}", self.name))
    }

    /// `kill -9`, and waits until it is gone. Does nothing to one that has ended.
    pub fn kill(&self) -> anyhow::Result<ExitStatus> {
        let mut child = self.child();
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        child.kill().with_context(|| format!("failed to kill {}", self.name))?;
        child
            .wait()
            .with_context(|| format!("failed to wait for {}", self.name))
    }

    /// SIGTERM, then waits up to `deadline` for its end.
    pub async fn terminate(&self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait_for_exit(deadline).await
    }

    /// Waits up to `deadline` for its end.
    pub async fn wait_for_exit(&self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        wait_for(&format!("{} to end", self.name), deadline, || async {
            self.exited()?
                .with_context(|| format!("still running; its log ends: {}", self.tail(500)))
        })
        .await
    }

    /// Waits until `GET http://127.0.0.1:<port><path>` answers 200; an end of the product ends the wait.
    pub async fn wait_until_ready(&self, port: u16, path: &str, deadline: Duration) -> anyhow::Result<()> {
        wait_for(&format!("{} to answer 200 at {path}", self.name), deadline, || async {
            // An end is final: no use in waiting on.
            if let Err(ended) = self.check_running() {
                return Ok(Err(ended));
            }
            let (status, body) = http_get(port, path).await?;
            anyhow::ensure!(status == 200, "{path} answers {status}: {}", body.trim());
            Ok(Ok(()))
        })
        .await?
    }

    /// Waits until a line of its log contains `text`; returns that line.
    pub async fn wait_for_log(&self, text: &str, deadline: Duration) -> anyhow::Result<String> {
        wait_for(&format!("{} to log {text:?}", self.name), deadline, || async {
            let log = self.log();
            if let Some(line) = log.lines().find(|line| line.contains(text)) {
                return Ok(Ok(line.to_owned()));
            }
            // An end is final: no use in waiting on.
            if let Err(ended) = self.check_running() {
                return Ok(Err(ended));
            }
            bail!("its log ends: {}", self.tail(1500))
        })
        .await?
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the parent-death signal stands behind it.
        let _ = self.kill();
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{} (pid {}, log {})",
            self.name,
            self.pid,
            self.log.display()
        )
    }
}
