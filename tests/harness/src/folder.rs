//! The folder of one run: configuration, logs, data. Logs stay; what dead runs left is cleared later.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Context as _;

use crate::programs::target_folder;

/// Runs of dead owners whose logs are kept.
const KEPT_RUNS: usize = 8;

/// What is large and tells nothing.
const DATA: [&str; 2] = ["etcd", "kubectl-cache"];

pub(crate) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    pub(crate) fn new(name: &str) -> anyhow::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let base = target_folder().join("harness");
        clear_dead(&base);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{}-{number}-{name}", std::process::id()));
        // A process id comes again; what its earlier bearer left is of no use.
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).with_context(|| format!("failed to make {}", path.display()))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.file(name);
        std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // A test that fails with an error drops this like one that passes, so the logs stay. What cannot be cleared now is
        // cleared by a later run.
        for data in DATA {
            drop(std::fs::remove_dir_all(self.path.join(data)));
        }
    }
}

/// Data of dead runs goes, and all but the newest of their logs.
fn clear_dead(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else { return };
    let mut dead: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let owner = path
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.split('-').next());
            owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists())
        })
        .filter_map(|path| Some((path.metadata().and_then(|data| data.modified()).ok()?, path)))
        .collect();
    dead.sort();
    let surplus = dead.len().saturating_sub(KEPT_RUNS);
    for (index, (_, path)) in dead.iter().enumerate() {
        drop(std::fs::remove_dir_all(if index < surplus {
            path.clone()
        } else {
            path.join("etcd")
        }));
    }
}
