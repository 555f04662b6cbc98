//! One watched object: what the watch has told so far.

use kube::runtime::watcher::{self, Event};

/// The last known state of one object.
#[derive(Debug)]
pub(crate) struct Slot<K> {
    object: Option<K>,
    listed: Option<K>,
    synced: bool,
    fault: Option<String>,
}

impl<K> Default for Slot<K> {
    fn default() -> Self {
        Self {
            object: None,
            listed: None,
            synced: false,
            fault: None,
        }
    }
}

impl<K> Slot<K> {
    /// A slot for an object that nobody asked for: known to be absent.
    pub(crate) fn absent() -> Self {
        Self {
            synced: true,
            ..Self::default()
        }
    }

    /// Takes an event in; whether anything is to be decided again.
    pub(crate) fn take(&mut self, event: Result<Event<K>, watcher::Error>) -> bool {
        match event {
            Ok(Event::Init) => {
                self.listed = None;
                return false;
            }
            Ok(Event::InitApply(object)) => {
                self.listed = Some(object);
                return false;
            }
            Ok(Event::InitDone) => {
                let listed = self.listed.take();
                self.set(listed);
            }
            Ok(Event::Apply(object)) => self.set(Some(object)),
            Ok(Event::Delete(_)) => self.set(None),
            Err(error) => self.fail(&error.to_string()),
        }
        true
    }

    /// What a read or the answer of a write of our own showed.
    pub(crate) fn set(&mut self, object: Option<K>) {
        self.object = object;
        self.synced = true;
        self.fault = None;
    }

    /// The API server could not be asked.
    pub(crate) fn fail(&mut self, fault: &str) {
        self.fault = Some(fault.to_owned());
    }

    /// The object, if it exists as far as we know.
    pub(crate) fn object(&self) -> Option<&K> {
        self.object.as_ref()
    }

    /// Whether the object or its absence is known.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Why what we know may be old.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}
