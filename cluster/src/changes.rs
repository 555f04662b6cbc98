//! What has changed since somebody last asked: no change is ever lost, and the memory for it is bounded.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use shared::workload::ObjectRef;
use tokio::sync::Notify;

/// Above so many changed objects a full pass is cheaper than remembering them one by one.
const LIMIT: usize = 10_000;

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// The objects, of any source.
    pub objects: HashSet<ObjectRef>,
    /// More than can be told one by one: a source was filled, failed or recovered, or too many objects changed.
    pub everything: bool,
}

impl Changes {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && !self.everything
    }
}

/// Collects changes for one reader.
#[derive(Debug, Default)]
pub struct ChangeLog {
    pending: Mutex<Changes>,
    notify: Notify,
}

impl ChangeLog {
    /// Notes that an object was set or is gone.
    pub fn mark(&self, object: ObjectRef) {
        {
            let mut pending = self.pending();
            if pending.everything {
                // Told already.
                return;
            }
            pending.objects.insert(object);
            if pending.objects.len() > LIMIT {
                *pending = Changes {
                    everything: true,
                    ..Changes::default()
                };
            }
        }
        self.notify.notify_one();
    }

    /// Notes that anything may have changed.
    pub fn mark_everything(&self) {
        *self.pending() = Changes {
            everything: true,
            ..Changes::default()
        };
        self.notify.notify_one();
    }

    /// Takes what has changed since the last call.
    pub fn take(&self) -> Changes {
        std::mem::take(&mut *self.pending())
    }

    /// Waits until something has changed. May be dropped and called again without losing anything.
    pub async fn changed(&self) {
        loop {
            let notified = self.notify.notified();
            if !self.pending().is_empty() {
                return;
            }
            notified.await;
        }
    }

    fn pending(&self) -> MutexGuard<'_, Changes> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
