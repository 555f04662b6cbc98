//! Counters of what became of actions. No client required.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::decide::action::Purpose;

use super::outcome::Ended;

/// Counts every action by its purpose and by how it ended, also those that were not sent.
#[derive(Debug, Default)]
pub struct ActStats {
    counts: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl ActStats {
    pub(super) fn count(&self, purpose: Purpose, ended: &Ended) {
        self.add(purpose.label(), ended.label());
    }

    /// Second writes that gave an ownership up, or could not.
    pub(super) fn disowned(&self, done: bool) {
        self.add("disown", if done { "done" } else { "failed" });
    }

    fn add(&self, purpose: &'static str, ended: &'static str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((purpose, ended)).or_default() += 1;
    }

    /// All counts: purpose, how it ended, how often.
    pub fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|((purpose, ended), count)| (*purpose, *ended, *count))
            .collect()
    }

    /// How many actions ended so, whatever their purpose.
    pub fn ended(&self, label: &str) -> u64 {
        self.counts()
            .into_iter()
            .filter(|(_, ended, _)| *ended == label)
            .map(|(_, _, count)| count)
            .sum()
    }
}
