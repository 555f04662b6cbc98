//! Equal texts kept once: thousands of workloads share their namespaces, label keys and most label values.

use std::{collections::HashSet, sync::Arc};

use shared::workload::Keys;

/// A set of texts in use.
#[derive(Debug)]
pub struct Interner {
    texts: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Default for Interner {
    fn default() -> Self {
        Self {
            texts: HashSet::new(),
            sweep_at: 1024,
        }
    }
}

impl Interner {
    /// The one copy of this text.
    pub fn text(&mut self, text: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        if self.texts.len() >= self.sweep_at {
            // Values such as template hashes come and go with every rollout.
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = (self.texts.len() * 2).max(1024);
            self.texts.shrink_to(self.sweep_at);
        }
        self.texts.insert(Arc::clone(text));
        Arc::clone(text)
    }

    /// The same for labels or annotations.
    pub fn keys(&mut self, keys: &mut Option<Keys>) {
        if let Some(keys) = keys {
            *keys = std::mem::take(keys)
                .into_iter()
                .map(|(key, value)| (self.text(&key), self.text(&value)))
                .collect();
        }
    }

    /// How many texts are kept.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}
