//! `offhours rules`: what the chart is made of, so that roles, webhooks and the forms of values are written in one place.

use std::io::Write;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;
use shared::kinds::Kinds;
use shared::rules::chart::chart;

use super::{Outcome, values};

/// Arguments of `offhours rules`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What
    #[arg(value_enum, default_value = "chart")]
    what: What,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// Roles and webhooks
    Chart,
    /// The JSON schema of the chart's values
    Values,
    /// The options that values may hold, and the time zones
    Options,
}

/// Prints it.
///
/// # Errors
/// If it cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let text = match arguments.what {
        What::Chart => file("rules", &chart(&Kinds::default()))?,
        What::Options => file("rules options", &values::options())?,
        What::Values => format!("{}\n", serde_json::to_string_pretty(&values::schema()?)?),
    };
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")?;
    Ok(Outcome::Done)
}

fn file(arguments: &str, content: &impl Serialize) -> anyhow::Result<String> {
    let yaml = serde_saphyr::to_string(content).context("failed to write YAML")?;
    Ok(format!(
        "# Made by `offhours {arguments}`; do not edit.\n{}\n",
        yaml.trim_end()
    ))
}
