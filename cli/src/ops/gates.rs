//! The table of what must be there before the process is ready.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

type Look = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Named gates; each tells why it is shut.
#[derive(Clone, Default)]
pub struct Gates(Arc<Mutex<Vec<(String, Look)>>>);

impl Gates {
    /// Adds a gate. `look` is asked at each probe; `Err`: what is still missing.
    pub fn add(&self, name: impl Into<String>, look: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((name.into(), Box::new(look)));
    }

    /// Whether all are open, and a line for each.
    pub fn report(&self) -> (bool, String) {
        let mut ready = true;
        let mut text = String::new();
        for (name, look) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = match look() {
                Ok(()) => writeln!(text, "[+] {name}"),
                Err(missing) => {
                    ready = false;
                    writeln!(text, "[-] {name}: {missing}")
                }
            };
        }
        (ready, text)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn ready_only_when_every_gate_is_open_and_says_which_is_not() {
        let gates = Gates::default();
        let open = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&open);
        gates.add("settings", || Ok(()));
        gates.add("view", move || {
            seen.load(Ordering::Relaxed)
                .then_some(())
                .ok_or_else(|| "deployments are not listed yet".to_owned())
        });
        assert_eq!(
            gates.report(),
            (
                false,
                "[+] settings\n[-] view: deployments are not listed yet\n".to_owned()
            )
        );
        open.store(true, Ordering::Relaxed);
        assert!(gates.report().0);
    }
}
