//! Hears what the webhook did: metrics, and Events on objects.

use std::collections::BTreeSet;
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
    resource: Arc<str>,
}

/// What a request is counted under that speaks of nothing we are registered for: whoever reaches the port can write any name.
const OTHER: &str = "other";
/// The same for a request that could not be read.
const NONE: &str = "";

/// The values of the label `resource`: those of the rules that the webhook is registered by.
fn resources(kinds: &Kinds) -> BTreeSet<Arc<str>> {
    let mut known: BTreeSet<Arc<str>> = [
        "namespaces",
        "offhoursschedules",
        "horizontalpodautoscalers",
        OTHER,
        NONE,
    ]
    .into_iter()
    .map(Arc::from)
    .collect();
    for kind in kinds.rows() {
        known.insert(Arc::from(kind.plural.as_ref()));
        if kind.scale {
            known.insert(Arc::from(format!("{}/scale", kind.plural)));
        }
    }
    known
}

/// Counts and tells.
pub struct Ears {
    events: Events,
    reports: Reports,
    kinds: Kinds,
    resources: BTreeSet<Arc<str>>,
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
            resources: resources(&kinds),
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
        let resource = if ruled.subresource.is_empty() {
            self.resources.get(ruled.resource)
        } else {
            self.resources
                .get(format!("{}/{}", ruled.resource, ruled.subresource).as_str())
        };
        let resource = resource.cloned().unwrap_or_else(|| Arc::from(OTHER));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use webhook::service::{Outcome, Phase};

    use super::*;

    #[tokio::test]
    async fn no_name_in_a_request_makes_a_new_series() {
        let client = kube::Client::new(
            tower::service_fn(|_: http::Request<kube::client::Body>| async {
                Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
            }),
            "default",
        );
        let clock: Arc<dyn shared::clock::Clock> = Arc::new(crate::clock::SystemClock);
        let (events, _task) = Events::start(
            client.clone(),
            Arc::clone(&clock),
            cluster::events::EventSettings::new("test", "test"),
        );
        let (reports, _work) = webhook::report::reports(client, clock);
        let mut registry = Registry::default();
        let ears = Ears::new(events, reports, Kinds::default(), &mut registry);
        let rule = |resource: &str, subresource: &str| {
            ears.ruled(&Ruled {
                phase: Phase::Mutate,
                outcome: Outcome::Passed,
                resource,
                subresource,
                namespace: "shop",
                dry_run: false,
                took: Duration::ZERO,
            });
        };
        for number in 0..1000 {
            rule(&format!("things-{number}"), "");
            rule("deployments", &format!("part-{number}"));
            rule(&format!("\"}}\n{number}"), "scale");
        }
        for (resource, subresource) in [
            ("deployments", ""),
            ("deployments", "scale"),
            ("namespaces", ""),
            ("", ""),
        ] {
            rule(resource, subresource);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let series: Vec<&str> = text.lines().filter(|line| line.starts_with("rulings_total{")).collect();
        assert_eq!(series.len(), 5, "{series:?}");
        assert!(
            series
                .iter()
                .any(|line| line.contains("resource=\"other\"") && line.ends_with(" 3000"))
        );
        assert!(
            series
                .iter()
                .any(|line| line.contains("resource=\"deployments/scale\""))
        );
    }
}
