//! Tests of all Markdown: links lead somewhere, command lines can be parsed, schedules are valid.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap::error::ErrorKind;
use serde_json::Value;
use shared::api::{read_document, validate};

use crate::Cli;
use crate::commands::tool::documents;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every page, with its text.
fn pages() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut found = vec![root().join("README.md")];
    walk(&root().join("docs"), &mut found);
    walk(&root().join("manifests"), &mut found);
    found.sort();
    assert!(found.len() > 20, "{found:?}");
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    };
    found.into_iter().map(read).collect()
}

/// A fenced block: its language, its text, and the line at which it begins.
struct Block {
    language: String,
    text: String,
    line: usize,
    indent: usize,
}

/// The blocks of a page, and the page without them.
fn parts(page: &str) -> (Vec<Block>, String) {
    let mut blocks = Vec::new();
    let mut prose = String::new();
    let mut open: Option<(String, Block)> = None;
    for (number, line) in page.lines().enumerate() {
        let trimmed = line.trim_start();
        match &mut open {
            Some((fence, _)) if trimmed.starts_with(fence.as_str()) => {
                blocks.extend(open.take().map(|(_, block)| block));
            }
            Some((_, block)) => {
                // A block in a list is indented as its fence is.
                let inner = line.strip_prefix(&" ".repeat(block.indent)).unwrap_or(line);
                block.text.push_str(inner);
                block.text.push('\n');
            }
            None if trimmed.starts_with("```") => {
                let fence: String = trimmed.chars().take_while(|letter| *letter == '`').collect();
                let language = trimmed.trim_start_matches('`').trim().to_owned();
                open = Some((
                    fence,
                    Block {
                        language,
                        text: String::new(),
                        line: number + 1,
                        indent: line.len() - trimmed.len(),
                    },
                ));
            }
            None => {
                prose.push_str(line);
                prose.push('\n');
            }
        }
    }
    assert!(open.is_none(), "a block without an end");
    (blocks, prose)
}

/// The anchors of a page, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let (_, prose) = parts(page);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
                .map(|letter| if letter == ' ' { '-' } else { letter })
                .collect()
        })
        .collect()
}

/// Targets of `[text](target)`.
fn links(prose: &str) -> Vec<String> {
    prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

#[test]
fn every_relative_link_leads_to_a_file_and_every_anchor_to_a_heading() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (path, page) in pages() {
        let (_, prose) = parts(&page);
        for link in links(&prose) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (file, anchor) = link
                .split_once('#')
                .map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() {
                path.clone()
            } else {
                path.parent().unwrap().join(file)
            };
            let found = match anchor {
                None => target.exists(),
                Some(anchor) => std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            if !found {
                wrong.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 60, "{count} links only: does this test still find them?");
}

#[test]
fn every_page_is_reached_from_another_one() {
    let mut reached = BTreeSet::new();
    for (path, page) in pages() {
        for link in links(&parts(&page).1) {
            let target = path.parent().unwrap().join(link.split('#').next().unwrap());
            // A folder stands for its pages.
            if target != path
                && let Ok(target) = target.canonicalize()
            {
                reached.insert(target);
            }
        }
    }
    for (path, _) in pages() {
        let path = path.canonicalize().unwrap();
        let is_front = path == root().join("README.md").canonicalize().unwrap();
        let found = path.ancestors().take(3).any(|place| reached.contains(place));
        assert!(is_front || found, "no page leads to {}", path.display());
    }
}

/// Words as a shell parts them; what follows a pipe, a redirection or a comment is not ours.
fn words(line: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '|' | '>' | ';' | '#' | '&') => break,
            (None, ' ' | '\t') => found.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    found.extend(word);
    found
}

/// Why a command line of ours cannot be parsed. `mention`: prose may leave out what is required.
fn mistake(line: &str, mention: bool) -> Option<String> {
    let mut words = words(line);
    // `VARIABLE=value offhours`
    while words.first().is_some_and(|word| word.contains('=')) {
        words.remove(0);
    }
    if words.first().is_some_and(|word| word == "kubectl") && words.get(1).is_some_and(|word| word == "offhours") {
        words.remove(0);
    }
    if words.first().is_none_or(|word| word != "offhours") || words.iter().any(|word| word.contains('…')) {
        return None;
    }
    let error = Cli::command().try_get_matches_from(&words).err()?;
    let fine = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
        || mention && error.kind() == ErrorKind::MissingRequiredArgument;
    (!fine).then(|| error.to_string())
}

#[test]
fn every_command_line_of_ours_can_be_parsed() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (path, page) in pages() {
        let (blocks, prose) = parts(&page);
        let in_blocks = blocks
            .iter()
            .filter(|block| matches!(block.language.as_str(), "sh" | "console" | "bash"))
            .flat_map(|block| block.text.lines().map(|line| (line, false)));
        let in_prose = prose.split('`').skip(1).step_by(2).map(|line| (line, true));
        for (line, mention) in in_blocks.chain(in_prose) {
            let line = line.trim().trim_start_matches("$ ").replace('\n', " ");
            if words(&line).iter().any(|word| word == "offhours") {
                count += 1;
            }
            if let Some(error) = mistake(&line, mention) {
                wrong.push(format!("{}: `{line}`: {error}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 40, "{count} lines only: does this test still find them?");
}

#[test]
fn a_wrong_command_line_is_found() {
    assert!(mistake("offhours wake deployment/a --fore 2h", true).is_some());
    assert!(mistake("offhours wakes", true).is_some());
    assert!(mistake("kubectl offhours wake", false).is_some());
    assert!(mistake("offhours wake", true).is_none());
}

#[test]
fn every_schedule_in_the_pages_is_valid_and_all_yaml_can_be_read() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (path, page) in pages() {
        for block in parts(&page).0.iter().filter(|block| block.language == "yaml") {
            let place = format!("{}:{}", path.display(), block.line);
            let found = match documents(&block.text) {
                Ok(found) => found,
                Err(error) => {
                    wrong.push(format!("{place}: {error}"));
                    continue;
                }
            };
            for document in found {
                if document.get("kind").and_then(Value::as_str) != Some("OffHoursSchedule") {
                    continue;
                }
                count += 1;
                match read_document(document).and_then(|schedule| validate(&schedule.spec)) {
                    Ok(_) => {}
                    Err(problems) => wrong.push(format!("{place}: {problems:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 8, "{count} schedules only: does this test still find them?");
}

/// Code in a page's prose, and whatever stands in its blocks.
fn code(page: &str) -> String {
    let (blocks, prose) = parts(page);
    let mut text: Vec<&str> = prose.split('`').skip(1).step_by(2).collect();
    text.extend(blocks.iter().map(|block| block.text.as_str()));
    text.join("\n")
}

/// Words of a text that begin with this.
fn beginning_with<'t>(text: &'t str, beginning: &str) -> BTreeSet<&'t str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'))
        .filter(|word| word.starts_with(beginning))
        .collect()
}

#[test]
fn every_metric_and_alert_in_the_pages_exists() {
    let served: Vec<String> = crate::ops::table::SERIES
        .iter()
        .flat_map(|series| series.served_names())
        .collect();
    let alerts = std::fs::read_to_string(root().join("manifests/monitoring/alerts.yaml")).unwrap();
    let mut count = 0;
    for (path, page) in pages() {
        let text = code(&page);
        for name in beginning_with(&text, "offhours_") {
            count += 1;
            // A histogram is spoken of without its parts.
            let found = served.iter().any(|series| {
                series
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            });
            assert!(found, "{}: `{name}` is not served", path.display());
        }
        // Words of other kinds with the same beginning.
        let others = ["OffHoursSchedule", shared::hpa::ASKED];
        for name in beginning_with(&text, "OffHours") {
            if others.iter().any(|other| name.starts_with(other)) {
                continue;
            }
            assert!(
                alerts.contains(&format!("alert: {name}\n")),
                "{}: no alert `{name}`",
                path.display()
            );
        }
    }
    assert!(count > 20, "{count} metrics only: does this test still find them?");
}

#[test]
fn every_flag_in_the_page_of_the_webhook_is_one_of_its_own_or_of_a_program_that_is_named() {
    fn flags(command: &clap::Command, found: &mut BTreeSet<String>) {
        found.extend(
            command
                .get_arguments()
                .filter_map(|argument| argument.get_long())
                .map(|long| format!("--{long}")),
        );
        command.get_subcommands().for_each(|command| flags(command, found));
    }
    let mut ours = BTreeSet::new();
    flags(&Cli::command(), &mut ours);
    let text = code(&std::fs::read_to_string(root().join("docs/webhook.md")).unwrap());
    let named = beginning_with(&text, "--");
    assert!(named.len() > 4, "{named:?}");
    for flag in named {
        // That one is kube-apiserver's.
        assert!(
            ours.contains(flag) || flag == "--admission-control-config-file",
            "no flag {flag}"
        );
    }
}
