//! The View as the webhook sees it. No client required.

use std::sync::Arc;

use cluster::store::SourceState;
use cluster::view::View;
use shared::kinds::{Kind, Kinds};
use shared::policy::Schedules;
use shared::workload::{Namespace, ObjectRef, Workload};

use crate::state::{Seen, Sight};

/// The View, and where compiled schedules come from.
pub struct Eyes {
    view: Arc<View>,
    schedules: Box<dyn Fn() -> Arc<Schedules> + Send + Sync>,
}

impl Eyes {
    /// Sees this view; `schedules` gives what is known of schedules at the time, and must not wait.
    pub fn new(view: Arc<View>, schedules: impl Fn() -> Arc<Schedules> + Send + Sync + 'static) -> Self {
        Self {
            view,
            schedules: Box::new(schedules),
        }
    }
}

/// What absence from a store in this state means.
fn missing<T>(what: &str, state: &SourceState) -> Seen<T> {
    match state {
        // A kind that we may not read counts as filled and empty.
        SourceState::Filled | SourceState::Failing { .. } | SourceState::Absent | SourceState::Forbidden { .. } => {
            Seen::Absent
        }
        SourceState::Unfilled { trouble: None } => Seen::Unknown(Arc::from(format!("{what} have not been read yet"))),
        SourceState::Unfilled { trouble: Some(why) } => {
            Seen::Unknown(Arc::from(format!("{what} cannot be read: {why}")))
        }
    }
}

impl Sight for Eyes {
    fn kinds(&self) -> &Kinds {
        self.view.kinds()
    }

    fn schedules(&self) -> Arc<Schedules> {
        (self.schedules)()
    }

    fn namespace(&self, name: &str) -> Seen<Arc<Namespace>> {
        let store = self.view.namespaces();
        match store.get("", name) {
            Some(namespace) => Seen::Known(namespace),
            None => missing("namespaces", &store.state()),
        }
    }

    fn workload(&self, kind: &Kind, namespace: &str, name: &str) -> Seen<Arc<Workload>> {
        let Some(store) = self.view.workloads(&kind.group, &kind.kind) else {
            return Seen::Absent;
        };
        match store.get(namespace, name) {
            Some(workload) => Seen::Known(workload),
            None => missing(&kind.plural, &store.state()),
        }
    }

    fn scaled_objects(&self, namespace: &str) -> Vec<Arc<Workload>> {
        self.view
            .workloads("keda.sh", "ScaledObject")
            .map(|store| store.in_namespace(namespace))
            .unwrap_or_default()
    }

    fn absorb(&self, kind: &Kind, namespace: &str, name: &str, json: &[u8]) {
        let object = ObjectRef {
            group: Arc::from(kind.group.as_ref()),
            kind: Arc::from(kind.kind.as_ref()),
            namespace: Arc::from(namespace),
            name: Arc::from(name),
        };
        if let Err(error) = self.view.apply_answer(&object, json) {
            tracing::warn!(%object, %error, "answer of our own write not taken in");
        }
    }
}
