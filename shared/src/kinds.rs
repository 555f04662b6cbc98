//! One table, data only: kind -> knobs, where they are, what "down" is, how readiness is read.
//!
//! A kind is supported by one row. Everything else in the product speaks of workloads and knobs, not of kinds.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::annotations;
use crate::prune::Keep;

/// What a knob holds and what "down" is for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// A whole number of replicas; down: as many as the schedule keeps, usually 0.
    Count,
    /// A whole number written as text (an annotation); absent means that nothing is held. Down as for [`Form::Count`].
    CountText,
    /// A boolean; down: this value.
    Flag(bool),
    /// Text; down: this value.
    Text(Cow<'static, str>),
    /// Text that is only turned into `to` where it is `from`; goes along with the knobs that put to sleep, is none itself.
    Guard {
        /// The value that would do harm while down.
        from: Cow<'static, str>,
        /// What it is while down.
        to: Cow<'static, str>,
    },
}

/// A field of a workload that puts it to sleep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    /// Its name in the record's key: `offhours.platform.io/original-<name>`.
    pub name: Cow<'static, str>,
    /// Where it is: an RFC 6901 pointer.
    pub pointer: Cow<'static, str>,
    /// What it holds.
    pub form: Form,
}

impl Knob {
    /// The key of its record.
    pub fn record_key(&self) -> String {
        annotations::record_key(&self.name)
    }

    /// The pointer's tokens, unescaped.
    pub fn path(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.pointer.split('/').skip(1).map(|token| {
            if token.contains('~') {
                Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
            } else {
                Cow::Borrowed(token)
            }
        })
    }
}

/// Whether a kind is put to sleep without being asked for by `kinds`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByDefault {
    /// Wherever it exists.
    Yes,
    /// Only when `kinds` names it.
    No,
}

/// How to tell that a woken workload is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// `status.<field>` has reached `spec.replicas`.
    Replicas(&'static str),
    /// Its condition `Paused` is not True any more once nothing pauses it.
    NotPaused,
    /// Such a thing has no readiness: it counts as ready.
    None,
}

/// One supported kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// API group, `""` for the core.
    pub group: Cow<'static, str>,
    /// API version at which we read and write it.
    pub version: Cow<'static, str>,
    /// Kind, as in manifests.
    pub kind: Cow<'static, str>,
    /// Resource name in URLs and RBAC.
    pub plural: Cow<'static, str>,
    /// The knobs, the one that counts most first.
    pub knobs: Cow<'static, [Knob]>,
    /// Whether it sleeps without being asked for.
    pub by_default: ByDefault,
    /// How readiness is read.
    pub readiness: Readiness,
    /// Whether it has a `/scale` subresource that sets the first knob.
    pub scale: bool,
    /// Part of Kubernetes itself: no CRD has to be looked for.
    pub built_in: bool,
}

impl Kind {
    /// `apiVersion`, such as `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The name that `kubectl` takes: `deployment`, `cronjob`, or `rollouts.argoproj.io` for what is not built in.
    pub fn kubectl_name(&self) -> String {
        if self.built_in {
            self.kind.to_ascii_lowercase()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether a person who writes `name` means this kind: kind, plural or `plural.group`, whatever the case.
    pub fn is_named(&self, name: &str) -> bool {
        let full = |word: &str| {
            name.len() == word.len() + 1 + self.group.len()
                && name
                    .get(..word.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(word))
                && name
                    .get(word.len()..)
                    .is_some_and(|rest| rest.strip_prefix('.').is_some_and(|group| group == self.group))
        };
        name.eq_ignore_ascii_case(&self.kind)
            || name.eq_ignore_ascii_case(&self.plural)
            || full(&self.plural)
            || full(&self.kind)
    }
}

const fn knob(name: &'static str, pointer: &'static str, form: Form) -> Knob {
    Knob {
        name: Cow::Borrowed(name),
        pointer: Cow::Borrowed(pointer),
        form,
    }
}

const REPLICAS: Knob = knob("replicas", "/spec/replicas", Form::Count);
const SUSPEND: Knob = knob("suspend", "/spec/suspend", Form::Flag(true));
const ONE_COUNT: &[Knob] = &[REPLICAS];
const ONE_SUSPEND: &[Knob] = &[SUSPEND];
const STATEFUL_SET: &[Knob] = &[
    REPLICAS,
    knob(
        "when-scaled",
        "/spec/persistentVolumeClaimRetentionPolicy/whenScaled",
        Form::Guard {
            from: Cow::Borrowed("Delete"),
            to: Cow::Borrowed("Retain"),
        },
    ),
];
const RUNNER_SET: &[Knob] = &[
    knob("max-runners", "/spec/maxRunners", Form::Count),
    knob("min-runners", "/spec/minRunners", Form::Count),
];
const DAEMON_SET: &[Knob] = &[knob(
    "node-selector",
    "/spec/template/spec/nodeSelector/offhours.platform.io~1asleep",
    Form::Text(Cow::Borrowed("true")),
)];
const SCALED_OBJECT: &[Knob] = &[knob(
    "paused-replicas",
    "/metadata/annotations/autoscaling.keda.sh~1paused-replicas",
    Form::CountText,
)];
const SCALED_JOB: &[Knob] = &[knob(
    "paused",
    "/metadata/annotations/autoscaling.keda.sh~1paused",
    Form::Text(Cow::Borrowed("true")),
)];
const HIBERNATION: &[Knob] = &[knob(
    "hibernation",
    "/metadata/annotations/cnpg.io~1hibernation",
    Form::Text(Cow::Borrowed("on")),
)];

fn row(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    knobs: &'static [Knob],
) -> Kind {
    Kind {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        kind: Cow::Borrowed(kind),
        plural: Cow::Borrowed(plural),
        knobs: Cow::Borrowed(knobs),
        by_default: ByDefault::No,
        readiness: Readiness::None,
        scale: false,
        built_in: false,
    }
}

/// The rows that come with the product.
pub fn table() -> Vec<Kind> {
    vec![
        Kind {
            by_default: ByDefault::Yes,
            readiness: Readiness::Replicas("availableReplicas"),
            scale: true,
            built_in: true,
            ..row("apps", "v1", "Deployment", "deployments", ONE_COUNT)
        },
        Kind {
            by_default: ByDefault::Yes,
            readiness: Readiness::Replicas("readyReplicas"),
            scale: true,
            built_in: true,
            ..row("apps", "v1", "StatefulSet", "statefulsets", STATEFUL_SET)
        },
        Kind {
            readiness: Readiness::Replicas("readyReplicas"),
            scale: true,
            built_in: true,
            ..row("apps", "v1", "ReplicaSet", "replicasets", ONE_COUNT)
        },
        Kind {
            built_in: true,
            ..row("apps", "v1", "DaemonSet", "daemonsets", DAEMON_SET)
        },
        Kind {
            built_in: true,
            ..row("batch", "v1", "CronJob", "cronjobs", ONE_SUSPEND)
        },
        Kind {
            built_in: true,
            ..row("batch", "v1", "Job", "jobs", ONE_SUSPEND)
        },
        Kind {
            by_default: ByDefault::Yes,
            readiness: Readiness::Replicas("availableReplicas"),
            scale: true,
            ..row("argoproj.io", "v1alpha1", "Rollout", "rollouts", ONE_COUNT)
        },
        Kind {
            by_default: ByDefault::Yes,
            readiness: Readiness::NotPaused,
            ..row("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects", SCALED_OBJECT)
        },
        Kind {
            readiness: Readiness::NotPaused,
            ..row("keda.sh", "v1alpha1", "ScaledJob", "scaledjobs", SCALED_JOB)
        },
        row(
            "actions.github.com",
            "v1alpha1",
            "AutoscalingRunnerSet",
            "autoscalingrunnersets",
            RUNNER_SET,
        ),
        row("zalando.org", "v1", "Stack", "stacks", ONE_COUNT),
        Kind {
            scale: true,
            ..row(
                "kafka.strimzi.io",
                "v1beta2",
                "KafkaConnect",
                "kafkaconnects",
                ONE_COUNT,
            )
        },
        Kind {
            scale: true,
            ..row(
                "kafka.strimzi.io",
                "v1beta2",
                "KafkaMirrorMaker2",
                "kafkamirrormaker2s",
                ONE_COUNT,
            )
        },
        Kind {
            scale: true,
            ..row("kafka.strimzi.io", "v1beta2", "KafkaBridge", "kafkabridges", ONE_COUNT)
        },
        Kind {
            scale: true,
            ..row("monitoring.coreos.com", "v1", "Prometheus", "prometheuses", ONE_COUNT)
        },
        row("postgresql.cnpg.io", "v1", "Cluster", "clusters", HIBERNATION),
    ]
}

/// The kinds in use: the table and the rows that the user added.
#[derive(Debug, Clone)]
pub struct Kinds {
    rows: Vec<Arc<Kind>>,
    keep: Arc<Keep>,
    keep_of_review: Arc<Keep>,
}

impl Default for Kinds {
    fn default() -> Self {
        Self::with([])
    }
}

impl Kinds {
    /// The table and these rows. A row of the user's replaces one of the table with the same group and kind.
    pub fn with(added: impl IntoIterator<Item = Kind>) -> Self {
        let mut rows: Vec<Arc<Kind>> = table().into_iter().map(Arc::new).collect();
        for kind in added {
            rows.retain(|present| (&present.group, &present.kind) != (&kind.group, &kind.kind));
            rows.push(Arc::new(kind));
        }
        let keep = Arc::new(crate::workload::keep(rows.iter().map(Arc::as_ref)));
        let keep_of_review = Arc::new(crate::workload::keep_of_review(rows.iter().map(Arc::as_ref)));
        Self {
            rows,
            keep,
            keep_of_review,
        }
    }

    /// All rows.
    pub fn rows(&self) -> &[Arc<Kind>] {
        &self.rows
    }

    /// The fields that have to be read of any object of these kinds.
    pub fn keep(&self) -> &Arc<Keep> {
        &self.keep
    }

    /// Those of them that a request is judged by.
    pub fn keep_of_review(&self) -> &Arc<Keep> {
        &self.keep_of_review
    }

    /// The row of an object of this group and kind.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.rows.iter().find(|row| row.group == group && row.kind == kind)
    }

    /// The row of a resource of this group.
    pub fn by_resource(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.rows.iter().find(|row| row.group == group && row.plural == plural)
    }

    /// The rows that a person means by `name` (see [`Kind::is_named`]).
    pub fn named<'k>(&'k self, name: &'k str) -> impl Iterator<Item = &'k Arc<Kind>> {
        self.rows.iter().filter(move |row| row.is_named(name))
    }
}

/// A text that a record can hold, of a knob's value: `absent`, a number, a boolean or text.
pub fn value_text(value: Option<&Value>) -> String {
    match value {
        None => annotations::ABSENT.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_has_a_name_of_its_own_and_a_pointer() {
        for kind in table() {
            assert!(!kind.knobs.is_empty(), "{}", kind.kind);
            assert!(
                !matches!(kind.knobs.first().unwrap().form, Form::Guard { .. }),
                "{}",
                kind.kind
            );
            let mut names: Vec<_> = kind.knobs.iter().map(|knob| &knob.name).collect();
            names.dedup();
            assert_eq!(names.len(), kind.knobs.len(), "{}", kind.kind);
            for knob in kind.knobs.iter() {
                assert!(knob.pointer.starts_with('/'), "{}", knob.pointer);
            }
        }
    }

    #[test]
    fn a_kind_answers_to_its_names() {
        let kinds = Kinds::default();
        for name in [
            "Deployment",
            "deployment",
            "deployments",
            "deployments.apps",
            "Deployment.apps",
        ] {
            assert_eq!(kinds.named(name).count(), 1, "{name}");
        }
        assert_eq!(kinds.named("deployments.batch").count(), 0);
        assert_eq!(kinds.named("pods").count(), 0);
        assert_eq!(
            kinds.by_kind("argoproj.io", "Rollout").unwrap().kubectl_name(),
            "rollouts.argoproj.io"
        );
    }

    #[test]
    fn pointers_are_unescaped_token_by_token() {
        let path: Vec<_> = SCALED_OBJECT[0].path().collect();
        assert_eq!(path, ["metadata", "annotations", "autoscaling.keda.sh/paused-replicas"]);
    }
}
