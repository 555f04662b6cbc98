//! Metrics whose values are looked up when somebody asks for them.

use std::fmt;
use std::sync::Arc;

use cluster::store::SourceState;
use cluster::view::View;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Labels of one value.
pub type Labels = Vec<(&'static str, String)>;

/// One metric with its values.
pub struct Sample {
    name: &'static str,
    help: &'static str,
    counter: bool,
    values: Vec<(Labels, f64)>,
}

impl Sample {
    /// Something that goes up and down.
    pub fn gauge(name: &'static str, help: &'static str, values: Vec<(Labels, f64)>) -> Self {
        Self {
            name,
            help,
            counter: false,
            values,
        }
    }

    /// Something that only goes up. The name is without `_total`.
    pub fn counter(name: &'static str, help: &'static str, values: Vec<(Labels, f64)>) -> Self {
        Self {
            name,
            help,
            counter: true,
            values,
        }
    }
}

/// Asks `look` at each scrape.
pub struct Scrape<F>(pub F);

impl<F> fmt::Debug for Scrape<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl<F: Fn() -> Vec<Sample> + Send + Sync + 'static> Collector for Scrape<F> {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for sample in (self.0)() {
            if sample.values.is_empty() {
                continue;
            }
            let kind = if sample.counter {
                MetricType::Counter
            } else {
                MetricType::Gauge
            };
            let mut metric = encoder.encode_descriptor(sample.name, sample.help, None, kind)?;
            for (labels, value) in &sample.values {
                if labels.is_empty() {
                    one(&mut metric, sample.counter, *value)?;
                } else {
                    one(&mut metric.encode_family(labels)?, sample.counter, *value)?;
                }
            }
        }
        Ok(())
    }
}

fn one(metric: &mut prometheus_client::encoding::MetricEncoder<'_>, counter: bool, value: f64) -> fmt::Result {
    if counter {
        metric.encode_counter::<NoLabelSet, f64, f64>(&value, None)
    } else {
        metric.encode_gauge(&value)
    }
}

/// What is followed, and how well.
pub fn view(view: &Arc<View>) -> Vec<Sample> {
    let sources = view.sources();
    let label = |resource: &Arc<str>| vec![("resource", resource.to_string())];
    let each = |value: &dyn Fn(&dyn cluster::view::Source) -> Option<f64>| {
        sources
            .iter()
            .filter_map(|source| Some((label(&source.resource()), value(source.as_ref())?)))
            .collect::<Vec<_>>()
    };
    vec![
        Sample::gauge(
            "watched_objects",
            "Objects that are known of a resource",
            each(&|source| Some(source.objects() as f64)),
        ),
        Sample::gauge(
            "watch_filled",
            "1 where a resource is listed and watched, 0 where it is not",
            each(&|source| Some(f64::from(source.state() == SourceState::Filled))),
        ),
        Sample::gauge(
            "watch_silence_seconds",
            "Time since the API server last said anything about a resource",
            each(&|source| Some(source.heard_ago()?.as_secs_f64())),
        ),
    ]
}

/// What was built.
pub fn build() -> Sample {
    Sample::gauge(
        "build_info",
        "Always 1; the version is in the label",
        vec![(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0)],
    )
}
