//! Whose turn it is: keeps for each need since when it is felt, so that replicas let each other go first, and when a
//! failed attempt may be repeated.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::{
    decision::{Leadership, Urgency, patience},
    settings::Lives,
};

/// A need that several replicas feel at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    Authority,
    MutatingBundle,
    ValidatingBundle,
}

#[derive(Debug)]
struct Felt {
    since: Instant,
    failures: u32,
    retry_at: Option<Instant>,
}

/// The needs felt now.
#[derive(Debug)]
pub(crate) struct Turns {
    felt: HashMap<Need, Felt>,
    rank: f64,
    lives: Lives,
}

impl Turns {
    pub(crate) fn new(rank: f64, lives: Lives) -> Self {
        Self {
            felt: HashMap::new(),
            rank,
            lives,
        }
    }

    /// How long to wait before acting on `need`; `None`: act.
    pub(crate) fn wait(&mut self, need: Need, urgency: Urgency, leadership: Leadership) -> Option<Duration> {
        let now = Instant::now();
        let felt = self.felt.entry(need).or_insert(Felt {
            since: now,
            failures: 0,
            retry_at: None,
        });
        let turn = felt.since + patience(urgency, leadership, self.rank, &self.lives);
        let at = felt.retry_at.map_or(turn, |retry| retry.max(turn));
        (at > now).then(|| at - now)
    }

    /// The need is met.
    pub(crate) fn met(&mut self, need: Need) {
        self.felt.remove(&need);
    }

    /// An attempt failed: the next one waits 1 s, 2 s, 4 s … up to the recheck period.
    pub(crate) fn failed(&mut self, need: Need) {
        let longest = self.lives.recheck;
        if let Some(felt) = self.felt.get_mut(&need) {
            let pause = Duration::from_secs(1 << felt.failures.min(6)).min(longest);
            felt.failures += 1;
            felt.retry_at = Some(Instant::now() + pause);
        }
    }
}
