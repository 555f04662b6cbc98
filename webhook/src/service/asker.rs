//! Who asks, and what that means. Pure.

use shared::api::{EnforcementMode, Subjects};
use shared::policy::Enforcement;

use crate::review::Request;
use crate::state::Policy;

/// Service accounts of GitOps controllers, whatever namespace they were installed in. `argocd-server` is none of them: it acts
/// for a person.
const PIPELINES: &[&str] = &[
    "argocd-application-controller",
    "argocd-manager",
    "kustomize-controller",
    "helm-controller",
];

/// All that shows of Argo CD where it impersonates somebody for its syncs.
const ARGO_FIELD_MANAGER: &str = "argocd-controller";

const HPA_CONTROLLER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
/// The HPA controller where controllers share one identity.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const KEDA: &str = "keda-operator";

/// Controllers that delete what has lost its owner or its namespace.
const CLEANERS: &[&str] = &[
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    CONTROLLER_MANAGER,
];

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    request: &'a Request<'a>,
    policy: &'a Policy,
}

/// What becomes of a request of this asker that would wake something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stance {
    /// It passes, unseen.
    Pass,
    /// It passes by an exemption, which is told.
    Override,
    /// It passes with a warning.
    Warn,
    /// It is rewritten. For autoscalers without a word, and what they ask for is never recorded.
    Rewrite {
        /// An autoscaler asks.
        silent: bool,
    },
    /// It is refused.
    Deny,
}

impl<'a> Asker<'a> {
    /// Who makes this request.
    pub fn of(request: &'a Request<'a>, policy: &'a Policy) -> Self {
        Self { request, policy }
    }

    /// The user's name.
    pub fn user(&self) -> &'a str {
        &self.request.user_info.username
    }

    /// Scheduler or webhook.
    pub fn is_own(&self) -> bool {
        self.policy.own_users.iter().any(|own| own == self.user())
    }

    /// One of these.
    pub fn is_among(&self, subjects: &Subjects) -> bool {
        let groups = &self.request.user_info.groups;
        subjects.users.iter().any(|pattern| is_like(pattern, self.user()))
            || subjects
                .groups
                .iter()
                .any(|pattern| groups.iter().any(|group| is_like(pattern, group)))
    }

    /// An autoscaling controller.
    pub fn is_autoscaler(&self) -> bool {
        self.user() == HPA_CONTROLLER
            || self.user() == CONTROLLER_MANAGER
            || service_account(self.user()) == Some(KEDA)
            || self.is_among(&self.policy.autoscalers)
    }

    /// A GitOps controller.
    pub fn is_pipeline(&self) -> bool {
        self.request.field_manager() == ARGO_FIELD_MANAGER
            || service_account(self.user()).is_some_and(|account| PIPELINES.contains(&account))
    }

    /// A controller that deletes what has lost its owner or its namespace.
    pub fn is_cleaner(&self) -> bool {
        CLEANERS.contains(&self.user())
    }

    /// Whether a hold lets it pass.
    pub fn is_exempt(&self, enforcement: &Enforcement) -> bool {
        self.is_among(&enforcement.exempt)
    }

    /// What becomes of its request under this enforcement.
    pub fn stance(&self, enforcement: &Enforcement) -> Stance {
        let silent = self.is_autoscaler();
        match enforcement.mode {
            EnforcementMode::Off => Stance::Pass,
            _ if self.is_exempt(enforcement) => Stance::Override,
            EnforcementMode::Warn if silent => Stance::Pass,
            EnforcementMode::Warn => Stance::Warn,
            EnforcementMode::Rewrite => Stance::Rewrite { silent },
            EnforcementMode::Deny => {
                let rewritten = match &enforcement.rewrite_for {
                    Some(subjects) => self.is_among(subjects),
                    None => self.is_pipeline(),
                };
                if silent || rewritten {
                    Stance::Rewrite { silent }
                } else {
                    Stance::Deny
                }
            }
        }
    }
}

/// A pattern is a whole name, or the beginning of one and `*`.
fn is_like(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

/// The name of a service account, without its namespace.
fn service_account(user: &str) -> Option<&str> {
    Some(user.strip_prefix("system:serviceaccount:")?.split_once(':')?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stance_of(user: &str, manager: &str, mode: EnforcementMode) -> Stance {
        let mut request = Request::default();
        request.user_info.username = user.into();
        request.options = Some(crate::review::Options {
            field_manager: manager.into(),
        });
        let enforcement = Enforcement {
            mode,
            exempt: Subjects {
                users: vec!["system:serviceaccount:ci:*".to_owned()],
                groups: Vec::new(),
            },
            ..Enforcement::default()
        };
        Asker::of(&request, &Policy::default()).stance(&enforcement)
    }

    #[test]
    fn rule_e2_people_are_refused_under_deny_and_pipelines_and_autoscalers_are_rewritten() {
        let deny = |user, manager| stance_of(user, manager, EnforcementMode::Deny);
        let rewritten = Stance::Rewrite { silent: false };
        assert_eq!(deny("ana", "kubectl"), Stance::Deny);
        assert_eq!(deny("ana", "argocd-controller"), rewritten);
        assert_eq!(
            deny("system:serviceaccount:gitops:argocd-application-controller", ""),
            rewritten
        );
        assert_eq!(deny("system:serviceaccount:kube-system:argocd-manager", ""), rewritten);
        assert_eq!(deny("system:serviceaccount:flux-system:helm-controller", ""), rewritten);
        assert_eq!(deny("system:serviceaccount:argocd:argocd-server", ""), Stance::Deny);
        assert_eq!(deny(HPA_CONTROLLER, ""), Stance::Rewrite { silent: true });
        assert_eq!(
            deny("system:serviceaccount:keda:keda-operator", ""),
            Stance::Rewrite { silent: true }
        );
    }

    #[test]
    fn rule_e5_the_exempt_pass_in_every_mode_and_off_looks_at_nobody() {
        for mode in [EnforcementMode::Warn, EnforcementMode::Rewrite, EnforcementMode::Deny] {
            assert_eq!(
                stance_of("system:serviceaccount:ci:deployer", "", mode),
                Stance::Override
            );
        }
        assert_eq!(stance_of("ana", "", EnforcementMode::Off), Stance::Pass);
        assert_eq!(stance_of("ana", "", EnforcementMode::Warn), Stance::Warn);
        assert_eq!(stance_of(HPA_CONTROLLER, "", EnforcementMode::Warn), Stance::Pass);
    }
}
