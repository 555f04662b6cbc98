//! The table of all metrics: what is registered, what the reference says, and what alerts and the dashboard may use.

use std::fmt::Write as _;

use prometheus_client::registry::{Metric, Registry};

/// What every name begins with.
pub const PREFIX: &str = "offhours";

/// How a series behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Goes up and down.
    Gauge,
    /// Only goes up; served as `<name>_total`.
    Counter,
    /// Served as `<name>_bucket`, `<name>_sum` and `<name>_count`.
    Histogram,
}

/// Which process serves a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// Each.
    Always,
    /// One with a scheduler.
    Scheduler,
    /// One with a scheduler, while it leads.
    Leader,
    /// One with a webhook.
    Webhook,
}

/// One row.
#[derive(Debug)]
pub struct Series {
    /// Name without prefix and without the suffix of a counter.
    pub name: &'static str,
    /// How it behaves.
    pub sort: Sort,
    /// Its labels; the set of their values is bounded.
    pub labels: &'static [&'static str],
    /// Which process serves it.
    pub served: Served,
    /// What it means, with its unit.
    pub help: &'static str,
}

impl Series {
    /// The names under which samples are served.
    pub fn served_names(&self) -> Vec<String> {
        let name = format!("{PREFIX}_{}", self.name);
        match self.sort {
            Sort::Gauge => vec![name],
            Sort::Counter => vec![format!("{name}_total")],
            Sort::Histogram => ["bucket", "sum", "count"]
                .into_iter()
                .map(|suffix| format!("{name}_{suffix}"))
                .collect(),
        }
    }

    /// Registers a metric under this row's name.
    pub fn register(&self, registry: &mut Registry, metric: impl Metric) {
        registry.register(self.name, self.help, metric);
    }
}

macro_rules! series {
    ($($row:ident = $name:literal $sort:ident $served:ident [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $row: Series = Series {
                name: $name,
                sort: Sort::$sort,
                labels: &[$($label),*],
                served: Served::$served,
                help: $help,
            };
        )*
        /// All rows.
        pub const SERIES: &[&Series] = &[$(&$row),*];
    };
}

series! {
    BUILD_INFO = "build_info" Gauge Always ["version"] "Always 1; the version is in the label";
    SCHEDULE_STATE = "schedule_state" Gauge Always ["schedule", "state"] "1 for the state that a schedule is in (Up, Down, Unknown or Suspended), 0 for the others";
    SCHEDULE_NEXT = "schedule_next_transition_timestamp_seconds" Gauge Always ["schedule", "to"] "Unix time of a schedule's next transition; absent where there is none";
    WATCHED_OBJECTS = "watched_objects" Gauge Always ["resource"] "Objects that are known of a resource";
    WATCH_FILLED = "watch_filled" Gauge Always ["resource"] "1 where a resource is listed and watched, 0 where it is not";
    WATCH_SILENCE = "watch_silence_seconds" Gauge Always ["resource"] "Time since the API server last said anything about a resource, in seconds";
    LEADER = "leader" Gauge Scheduler [] "1 where this process leads the schedulers";
    LEASE_RENEWALS = "lease_renewals" Counter Scheduler [] "Renewals of the lease that succeeded";
    LEASE_LOSSES = "lease_losses" Counter Scheduler [] "Times that leadership was lost";
    LEASE_FAILURES = "lease_failures" Counter Scheduler [] "Calls about the lease that failed";
    WRITES = "writes" Counter Scheduler ["purpose", "result"] "Writes by what they were for and how they ended";
    WORKLOADS = "workloads" Gauge Leader ["schedule", "state"] "Workloads that follow a schedule, by how they are (up, down, protected, failing)";
    TRANSITIONS = "transitions" Counter Leader ["schedule", "to"] "Shutdowns and startups that came to rest, also those by hand: no write is outstanding";
    TRANSITION_SECONDS = "transition_seconds" Histogram Leader ["to"] "Time from the first write of a transition until it came to rest, in seconds";
    REPLICA_HOURS = "replica_hours_saved" Counter Leader ["schedule"] "Replicas that sleep, times the hours that they have slept, since this process leads";
    CPU_HOURS = "cpu_core_hours_saved" Counter Leader ["schedule"] "CPU requests of the replicas that sleep, in cores, times hours";
    MEMORY_HOURS = "memory_gib_hours_saved" Counter Leader ["schedule"] "Memory requests of the replicas that sleep, in GiB, times hours";
    RULINGS = "rulings" Counter Webhook ["phase", "outcome", "resource"] "Requests by endpoint, ruling and resource; `held` is the mode Rewrite, `denied` Deny, `warned` Warn, `overridden` an exemption, a wake, a protection or another label";
    REVIEW_SECONDS = "review_seconds" Histogram Webhook [] "Time from a request's body to its answer, in seconds";
    REVIEWS_SHED = "reviews_shed" Counter Webhook [] "Requests turned away because too many were being served";
    REVIEW_PANICS = "review_panics" Counter Webhook [] "Requests that met a fault of ours";
    HELD_REPEATEDLY = "held_repeatedly" Counter Webhook [] "Workloads that were held again and again within ten minutes";
    CERTIFICATE_EXPIRY = "certificate_expiry_seconds" Gauge Webhook [] "Time until the served certificate ends, in seconds";
    AUTHORITY_EXPIRY = "certificate_authority_expiry_seconds" Gauge Webhook [] "Time until our authority ends, in seconds";
    REACHED = "webhook_reached" Gauge Webhook [] "1 where a self-test through the API server came through to a webhook, 0 where it did not; absent while it is not known";
    HANDSHAKES_REFUSED = "handshakes_refused" Counter Webhook [] "TLS handshakes without a usable certificate";
}

/// The page of the reference.
pub fn page() -> String {
    let mut text = "<!-- Made by `offhours reference metrics`; do not edit. -->\n# Metrics\n\n".to_owned();
    text.push_str(
        "Served as OpenMetrics at `/metrics` on the address of probes (`--ops-address`). Labels are bounded: names of schedules, of \
         resources and of outcomes, never of workloads or namespaces. Alerts and a dashboard are in the guide on \
         [monitoring](../guides/monitoring.md).\n\n| series | type | labels | served by | meaning |\n|---|---|---|---|---|\n",
    );
    for series in SERIES {
        let names: Vec<String> = series.served_names().iter().map(|name| format!("`{name}`")).collect();
        let labels: Vec<String> = series.labels.iter().map(|label| format!("`{label}`")).collect();
        let sort = match series.sort {
            Sort::Gauge => "gauge",
            Sort::Counter => "counter",
            Sort::Histogram => "histogram",
        };
        let served = match series.served {
            Served::Always => "each process",
            Served::Scheduler => "the scheduler",
            Served::Leader => "the scheduler that leads",
            Served::Webhook => "the webhook",
        };
        let _ = writeln!(
            text,
            "| {} | {sort} | {} | {served} | {} |",
            names.join(", "),
            labels.join(", "),
            series.help
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn monitoring(file: &str) -> String {
        let path = format!("{}/../manifests/monitoring/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Every word of an expression that begins with our prefix.
    fn series_in(expression: &str) -> Vec<&str> {
        expression
            .split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'))
            .filter(|word| word.starts_with("offhours_"))
            .collect()
    }

    fn collect<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    match value.as_str() {
                        Some(text) if name == key => found.push(text),
                        _ => collect(value, key, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, key, found)),
            _ => {}
        }
    }

    fn served() -> BTreeSet<String> {
        SERIES.iter().flat_map(|series| series.served_names()).collect()
    }

    #[test]
    fn alerts_and_dashboard_use_only_series_that_are_served() {
        let alerts: Value = serde_saphyr::from_str(&monitoring("alerts.yaml")).unwrap();
        let dashboard: Value = serde_json::from_str(&monitoring("dashboard.json")).unwrap();
        let known = served();
        for (what, document, least) in [("alerts", &alerts, 7), ("dashboard", &dashboard, 10)] {
            let mut expressions = Vec::new();
            collect(document, "expr", &mut expressions);
            assert!(expressions.len() >= least, "{what}: {expressions:?}");
            for expression in expressions {
                let names = series_in(expression);
                assert!(!names.is_empty(), "{what}: {expression} uses none of our series");
                for name in names {
                    assert!(known.contains(name), "{what}: {name} is not served");
                }
            }
        }
    }

    #[test]
    fn the_tests_of_alerts_make_up_only_series_that_are_served() {
        let tests: Value = serde_saphyr::from_str(&monitoring("alerts.test.yaml")).unwrap();
        let known = served();
        let mut made_up = Vec::new();
        collect(&tests, "series", &mut made_up);
        let ours: Vec<&str> = made_up.into_iter().flat_map(series_in).collect();
        assert!(ours.len() > 15, "{ours:?}");
        for name in ours {
            assert!(known.contains(name), "{name} is not served");
        }
    }

    #[test]
    fn the_guide_lists_every_alert() {
        let alerts: Value = serde_saphyr::from_str(&monitoring("alerts.yaml")).unwrap();
        let guide =
            std::fs::read_to_string(format!("{}/../docs/guides/monitoring.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let mut names = Vec::new();
        collect(&alerts, "alert", &mut names);
        for name in names {
            assert!(guide.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn no_row_is_there_twice() {
        assert_eq!(
            served().len(),
            SERIES.iter().map(|series| series.served_names().len()).sum::<usize>()
        );
    }
}
