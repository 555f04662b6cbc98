//! Hears what the webhook did: metrics, and Events on objects.

use std::sync::Arc;

use cluster::events::{Events, Remark};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use shared::kinds::Kinds;
use shared::workload::ObjectRef;
use webhook::handlers::{Listener, Ruled};
use webhook::report::{Fight, Reports};
use webhook::service::Tell;

use crate::ops::table;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    phase: &'static str,
    outcome: &'static str,
    resource: String,
}

/// Counts and tells.
pub struct Ears {
    events: Events,
    reports: Reports,
    kinds: Kinds,
    rulings: Family<Labels, Counter>,
    latency: Histogram,
    shed: Counter,
    panics: Counter,
    fights: Counter,
}

impl Ears {
    /// Hears; Events go to `events`, and what is fought over to `reports`.
    pub fn new(events: Events, reports: Reports, kinds: Kinds, registry: &mut Registry) -> Self {
        // A review of a few hundred bytes takes tens of microseconds; what takes longer than a second is near its deadline.
        const BUCKETS: [f64; 12] = [
            0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0, 2.5,
        ];
        let ears = Self {
            events,
            reports,
            kinds,
            rulings: Family::default(),
            latency: Histogram::new(BUCKETS),
            shed: Counter::default(),
            panics: Counter::default(),
            fights: Counter::default(),
        };
        table::RULINGS.register(registry, ears.rulings.clone());
        table::REVIEW_SECONDS.register(registry, ears.latency.clone());
        table::REVIEWS_SHED.register(registry, ears.shed.clone());
        table::REVIEW_PANICS.register(registry, ears.panics.clone());
        table::HELD_REPEATEDLY.register(registry, ears.fights.clone());
        ears
    }

    fn remark(&self, object: &ObjectRef, uid: Arc<str>, reason: &'static str, note: String) {
        let version = self
            .kinds
            .by_kind(&object.group, &object.kind)
            .map_or_else(|| Arc::from("v1"), |kind| Arc::from(kind.version.as_ref()));
        self.events.tell(Remark {
            object: object.clone(),
            version,
            uid,
            action: "Hold",
            reason,
            note,
            warning: false,
        });
    }
}

impl Listener for Ears {
    fn ruled(&self, ruled: &Ruled<'_>) {
        // Resources are those of the registered rules, so their number is bounded.
        let resource = if ruled.subresource.is_empty() {
            ruled.resource.to_owned()
        } else {
            format!("{}/{}", ruled.resource, ruled.subresource)
        };
        self.rulings
            .get_or_create(&Labels {
                phase: match ruled.phase {
                    webhook::service::Phase::Mutate => "mutate",
                    webhook::service::Phase::Validate => "validate",
                },
                outcome: ruled.outcome.label(),
                resource,
            })
            .inc();
        self.latency.observe(ruled.took.as_secs_f64());
    }

    fn tell(&self, tell: Tell) {
        self.remark(&tell.object, tell.uid, tell.reason, tell.message);
    }

    fn fought_over(&self, workload: &ObjectRef, schedule: Option<Arc<str>>, message: &str) {
        self.fights.inc();
        tracing::warn!(%workload, "{message}");
        if let Some(schedule) = schedule {
            self.reports.tell(Fight {
                workload: workload.clone(),
                schedule,
                message: message.to_owned(),
            });
        }
    }

    fn shed(&self) {
        self.shed.inc();
    }

    fn panicked(&self) {
        self.panics.inc();
    }
}
