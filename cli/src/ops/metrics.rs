//! Metrics whose values are looked up when somebody asks for them.

use std::fmt;
use std::sync::Arc;

use cluster::schedules::ScheduleSource;
use cluster::store::SourceState;
use cluster::view::View;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use scheduler::engine::ledger::{Figures, Ledger};
use shared::clock::Clock;
use shared::schedule::State;

use super::table::{self, Series, Sort};

/// Labels of one value.
pub type Labels = Vec<(&'static str, String)>;

/// A row of the table with its values.
pub struct Sample {
    series: &'static Series,
    values: Vec<(Labels, f64)>,
}

impl Sample {
    /// These values.
    pub fn of(series: &'static Series, values: Vec<(Labels, f64)>) -> Self {
        Self { series, values }
    }

    /// One value without labels.
    pub fn one(series: &'static Series, value: f64) -> Self {
        Self::of(series, vec![(Vec::new(), value)])
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
            let counter = sample.series.sort == Sort::Counter;
            let kind = if counter {
                MetricType::Counter
            } else {
                MetricType::Gauge
            };
            let mut metric = encoder.encode_descriptor(sample.series.name, sample.series.help, None, kind)?;
            for (labels, value) in &sample.values {
                if labels.is_empty() {
                    one(&mut metric, counter, *value)?;
                } else {
                    one(&mut metric.encode_family(labels)?, counter, *value)?;
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
        Sample::of(&table::WATCHED_OBJECTS, each(&|source| Some(source.objects() as f64))),
        Sample::of(
            &table::WATCH_FILLED,
            each(&|source| Some(f64::from(source.state() == SourceState::Filled))),
        ),
        Sample::of(
            &table::WATCH_SILENCE,
            each(&|source| Some(source.heard_ago()?.as_secs_f64())),
        ),
    ]
}

/// The states of schedules.
pub fn schedules(source: &ScheduleSource, clock: &dyn Clock) -> Vec<Sample> {
    let now = clock.now();
    let mut states = Vec::new();
    let mut next = Vec::new();
    for schedule in source.current().schedules.iter() {
        let present = schedule.present(now);
        let is = match &present {
            _ if schedule.suspend => "Suspended",
            Ok(present) => present.moment.state.as_str(),
            Err(_) => "Unknown",
        };
        let label =
            |key: &'static str, value: &str| vec![("schedule", schedule.name.to_string()), (key, value.to_owned())];
        for state in ["Up", "Down", "Unknown", "Suspended"] {
            states.push((label("state", state), f64::from(state == is)));
        }
        if let Ok(present) = &present
            && !schedule.suspend
            && let Some(until) = present.until
        {
            let to = if present.moment.state == State::Down {
                State::Up
            } else {
                State::Down
            };
            next.push((label("to", to.as_str()), until.as_second() as f64));
        }
    }
    vec![
        Sample::of(&table::SCHEDULE_STATE, states),
        Sample::of(&table::SCHEDULE_NEXT, next),
    ]
}

/// What the scheduler has done.
pub fn ledger(ledger: &Ledger) -> Vec<Sample> {
    let figures = ledger.figures();
    let each = |key: &'static str, value: &dyn Fn(&Figures) -> Vec<(&'static str, f64)>| {
        let all = figures.iter().flat_map(|(schedule, figures)| {
            value(figures).into_iter().map(|(word, value)| {
                let mut labels = vec![("schedule", schedule.to_string())];
                if !key.is_empty() {
                    labels.push((key, word.to_owned()));
                }
                (labels, value)
            })
        });
        all.collect::<Vec<_>>()
    };
    vec![
        Sample::of(
            &table::WORKLOADS,
            each("state", &|figures| {
                vec![
                    ("up", f64::from(figures.up)),
                    ("down", f64::from(figures.down)),
                    ("protected", f64::from(figures.protected)),
                    ("failing", f64::from(figures.failing)),
                ]
            }),
        ),
        Sample::of(
            &table::TRANSITIONS,
            each("to", &|figures| {
                vec![("Down", figures.shutdowns as f64), ("Up", figures.startups as f64)]
            }),
        ),
        Sample::of(
            &table::REPLICA_HOURS,
            each("", &|figures| vec![("", figures.replica_hours)]),
        ),
        Sample::of(&table::CPU_HOURS, each("", &|figures| vec![("", figures.cpu_hours)])),
        Sample::of(
            &table::MEMORY_HOURS,
            each("", &|figures| vec![("", figures.memory_hours)]),
        ),
    ]
}

/// How long transitions take, fetched from a ledger at each scrape.
#[derive(Debug, Clone)]
pub struct TransitionTimes {
    ledger: Ledger,
    down: Histogram,
    up: Histogram,
}

impl TransitionTimes {
    /// Of this ledger.
    pub fn new(ledger: Ledger) -> Self {
        // A handful takes less than a second; thousands, or waves that wait for each other, take minutes.
        const BUCKETS: [f64; 11] = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];
        Self {
            ledger,
            down: Histogram::new(BUCKETS),
            up: Histogram::new(BUCKETS),
        }
    }
}

impl Collector for TransitionTimes {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for (to, seconds) in self.ledger.take_ended() {
            let histogram = if to == State::Down { &self.down } else { &self.up };
            histogram.observe(seconds);
        }
        let series = &table::TRANSITION_SECONDS;
        let mut metric = encoder.encode_descriptor(series.name, series.help, None, MetricType::Histogram)?;
        for (to, histogram) in [(State::Down, &self.down), (State::Up, &self.up)] {
            histogram.encode(metric.encode_family(&[("to", to.as_str())])?)?;
        }
        Ok(())
    }
}

/// What was built.
pub fn build() -> Sample {
    Sample::of(
        &table::BUILD_INFO,
        vec![(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0)],
    )
}
