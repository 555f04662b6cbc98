//! How often each workload was held lately: what is held again and again is fought over. No client required.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use shared::workload::ObjectRef;

/// More than this many in [`WINDOW`] are too many.
const LIMIT: usize = 5;
/// See [`LIMIT`].
pub const WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// Workloads that are remembered at a time. Beyond, those not held for a while are forgotten first.
const CAPACITY: usize = 50_000;

/// Counts held requests per workload.
#[derive(Debug, Default)]
pub struct HeldCounter {
    times: Mutex<HashMap<ObjectRef, VecDeque<Timestamp>>>,
}

impl HeldCounter {
    /// Counts one. `Some(n)`: the n-th in the last ten minutes, and the first that is one too many.
    pub fn held(&self, workload: &ObjectRef, now: Timestamp) -> Option<usize> {
        let mut all = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= CAPACITY && !all.contains_key(workload) {
            all.retain(|_, times| times.back().is_some_and(|last| now.duration_since(*last) < WINDOW));
            if all.len() >= CAPACITY {
                return None;
            }
        }
        let times = all.entry(workload.clone()).or_default();
        while times.front().is_some_and(|first| now.duration_since(*first) >= WINDOW) {
            times.pop_front();
        }
        // Whether it is told does not depend on how many more there are.
        if times.len() <= LIMIT {
            times.push_back(now);
        } else {
            if let Some(last) = times.back_mut() {
                *last = now;
            }
            return None;
        }
        (times.len() == LIMIT + 1).then_some(times.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::ToSpan as _;

    use super::*;

    fn workload() -> ObjectRef {
        ObjectRef {
            group: Arc::from("apps"),
            kind: Arc::from("Deployment"),
            namespace: Arc::from("shop"),
            name: Arc::from("checkout"),
        }
    }

    #[test]
    fn rule_a8_the_sixth_in_ten_minutes_is_told_once() {
        let counter = HeldCounter::default();
        let mut now: Timestamp = "2026-11-30T23:00:00Z".parse().unwrap();
        let told: Vec<_> = (0..8)
            .map(|_| {
                now = now.checked_add(1.minutes()).unwrap();
                counter.held(&workload(), now)
            })
            .collect();
        assert_eq!(told, [None, None, None, None, None, Some(6), None, None]);
        // Once it has been quiet, it is told anew.
        now = now.checked_add(11.minutes()).unwrap();
        let again: Vec<_> = (0..6).map(|_| counter.held(&workload(), now)).collect();
        assert_eq!(again.last(), Some(&Some(6)));
    }

    #[test]
    fn rule_a8_twice_in_ten_minutes_for_ever_is_nothing() {
        let counter = HeldCounter::default();
        let mut now: Timestamp = "2026-11-30T23:00:00Z".parse().unwrap();
        for _ in 0..100 {
            now = now.checked_add(5.minutes()).unwrap();
            assert_eq!(counter.held(&workload(), now), None);
        }
    }
}
