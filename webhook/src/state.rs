//! What every request shares: settings and the view of the cluster. No client required.

use std::sync::Arc;

use shared::api::Subjects;
use shared::kinds::{Kind, Kinds};
use shared::policy::Schedules;
use shared::workload::{Namespace, Workload};

/// What is known of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<T> {
    /// This.
    Known(T),
    /// It is not there, as far as a watch can tell.
    Absent,
    /// Nobody can tell, for this reason.
    Unknown(Arc<str>),
}

/// What the webhook sees of the cluster, from memory: no call here may wait.
pub trait Sight: Send + Sync + 'static {
    /// The table of kinds.
    fn kinds(&self) -> &Kinds;
    /// All schedules.
    fn schedules(&self) -> Arc<Schedules>;
    /// A namespace.
    fn namespace(&self, name: &str) -> Seen<Arc<Namespace>>;
    /// A workload. A kind that we may not read counts as filled and empty.
    fn workload(&self, kind: &Kind, namespace: &str, name: &str) -> Seen<Arc<Workload>>;
    /// The `ScaledObject`s of a namespace. A kind that we may not read counts as filled and empty.
    fn scaled_objects(&self, namespace: &str) -> Vec<Arc<Workload>>;
    /// Takes in the answer to a PATCH of ours.
    fn absorb(&self, kind: &Kind, namespace: &str, name: &str, json: &[u8]);
}

/// What to do with a request that cannot be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUncertainty {
    /// It passes, with a warning.
    #[default]
    Allow,
    /// It is refused.
    Deny,
}

/// What the installation says about requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// User names that are our own: scheduler and webhook.
    pub own_users: Vec<String>,
    /// The namespace that we run in: never touched.
    pub own_namespace: String,
    /// What to do with a request that cannot be judged.
    pub on_uncertainty: OnUncertainty,
    /// Autoscaling controllers, on top of the HPA controller and KEDA.
    pub autoscalers: Subjects,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            own_users: Vec::new(),
            own_namespace: "offhours-system".to_owned(),
            on_uncertainty: OnUncertainty::default(),
            autoscalers: Subjects::default(),
        }
    }
}
