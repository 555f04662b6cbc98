//! What people read is made by `shared::messages`, whose tests make the reference of them: nothing else is said here.

use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_warning_refusal_and_event_comes_from_the_one_module_of_messages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    // The rest speaks to whoever runs it.
    let mut found = vec![root.join("handlers.rs")];
    sources(&root.join("service"), &mut found);
    assert!(found.len() > 10, "{found:?}");
    let mut seen = 0;
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let (code, _) = text.split_once("#[cfg(test)]").unwrap_or((text.as_str(), ""));
        for part in [
            ".warn(",
            "warnings.push(",
            "message: ",
            "warning: ",
            "failed: ",
            "denied(",
            "Ruling::deny(",
        ] {
            for (at, _) in code.match_indices(part) {
                seen += 1;
                let rest = code.get(at + part.len()..).unwrap_or_default();
                let rest = rest.trim_start();
                assert!(
                    !rest.starts_with('"') && !rest.starts_with("format!") && !rest.starts_with("String::from"),
                    "{}: {part}{}: write it in shared::messages",
                    path.display(),
                    rest.lines().next().unwrap_or_default()
                );
            }
        }
    }
    assert!(seen > 25, "{seen}");
}
