//! What is printed.

use std::{collections::BTreeMap, fmt, io::Write as _};

use anyhow::Context as _;
use harness::AuditedRequest;

use crate::stage::Measured;

/// One line.
pub fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("failed to write to stdout")
}

/// Pairs of the raw loop and ours.
pub struct Pairs {
    what: &'static str,
    raw: Vec<f64>,
    ours: Vec<f64>,
    ratios: Vec<f64>,
    cpu: Vec<f64>,
    raw_cpu: Vec<f64>,
    requests: String,
}

impl Pairs {
    /// None yet.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            raw: Vec::new(),
            ours: Vec::new(),
            ratios: Vec::new(),
            cpu: Vec::new(),
            raw_cpu: Vec::new(),
            requests: String::new(),
        }
    }

    /// One more.
    pub fn add(&mut self, raw: &Measured, ours: &Measured) -> anyhow::Result<()> {
        let ratio = ours.seconds / raw.seconds;
        say(&format!(
            "{}: raw {:.2} s, this {:.2} s, ratio {ratio:.3}; {}",
            self.what, raw.seconds, ours.seconds, ours.requests
        ))?;
        self.raw.push(raw.seconds);
        self.ours.push(ours.seconds);
        self.ratios.push(ratio);
        self.cpu.push(ours.cpu_per_write);
        self.raw_cpu.push(raw.cpu_per_write);
        self.requests = ours.requests.to_string();
        Ok(())
    }

    /// Medians, with quartiles in brackets.
    pub fn print(&self) -> anyhow::Result<()> {
        say(&format!(
            "{} | raw {} s | this {} s | ratio {} | CPU per write {} us | CPU of the raw loop per write {} us | {}",
            self.what,
            quartiles(&self.raw, 2),
            quartiles(&self.ours, 2),
            quartiles(&self.ratios, 3),
            quartiles(&self.cpu, 0),
            quartiles(&self.raw_cpu, 0),
            self.requests
        ))
    }
}

fn quartiles(values: &[f64], digits: usize) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |quarter: usize| {
        let index = sorted.len().saturating_sub(1) * quarter / 4;
        sorted.get(index).copied().unwrap_or(f64::NAN)
    };
    format!("{:.digits$} [{:.digits$}, {:.digits$}]", at(2), at(1), at(3))
}

/// Requests, by verb and resource.
pub struct Requests(BTreeMap<String, usize>);

impl Requests {
    /// Counts them.
    pub fn of(requests: &[AuditedRequest]) -> Self {
        let mut counts = BTreeMap::new();
        for request in requests {
            let slash = if request.subresource.is_empty() { "" } else { "/" };
            let line = format!(
                "{} {}{slash}{} {}",
                request.verb, request.resource, request.subresource, request.code
            );
            *counts.entry(line).or_default() += 1;
        }
        Self(counts)
    }

    /// How many with this verb.
    pub fn count(&self, verb: &str) -> usize {
        let with = self.0.iter().filter(|(line, _)| line.starts_with(verb));
        with.map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.0.iter().map(|(line, count)| format!("{count} x {line}"));
        let first = lines.next().unwrap_or_else(|| "no requests".to_owned());
        formatter.write_str(&first)?;
        lines.try_for_each(|line| write!(formatter, ", {line}"))
    }
}
