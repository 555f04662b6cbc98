//! Asks the API server whether somebody has the verb `override` on a schedule. Client required.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::review::UserInfo;
use crate::service::Authority;

/// How long an answer is good for.
const KEEP: Duration = Duration::from_secs(10);
/// How long is waited for an answer; none is a no.
const PATIENCE: Duration = Duration::from_millis(500);
/// Answers kept at a time.
const CAPACITY: usize = 10_000;

/// Somebody, and the schedule in question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// User name.
    pub user: String,
    /// Groups, in the order given.
    pub groups: Vec<String>,
    /// Schedule.
    pub schedule: String,
}

impl Question {
    /// Whether this user has the verb on this schedule.
    pub fn new(user: &UserInfo<'_>, schedule: &str) -> Self {
        Self {
            user: user.username.to_string(),
            groups: user.groups.iter().map(|group| group.to_string()).collect(),
            schedule: schedule.to_owned(),
        }
    }
}

/// Yes or no; `Err`: nobody can tell, which is a no that is not kept.
pub type Verdict = Result<bool, String>;

/// Whoever answers questions: the API server, or a test.
pub trait Oracle: Send + Sync + 'static {
    /// Answers one.
    fn ask(&self, question: Question) -> Pin<Box<dyn Future<Output = Verdict> + Send + '_>>;
}

/// The API server.
pub struct ApiServer(pub Client);

impl Oracle for ApiServer {
    fn ask(&self, question: Question) -> Pin<Box<dyn Future<Output = Verdict> + Send + '_>> {
        let api: Api<SubjectAccessReview> = Api::all(self.0.clone());
        Box::pin(async move {
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(question.user),
                    groups: Some(question.groups),
                    resource_attributes: Some(ResourceAttributes {
                        group: Some(shared::api::GROUP.to_owned()),
                        resource: Some("offhoursschedules".to_owned()),
                        name: Some(question.schedule),
                        verb: Some("override".to_owned()),
                        ..ResourceAttributes::default()
                    }),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            let answer = api
                .create(&PostParams::default(), &review)
                .await
                .map_err(|error| error.to_string())?;
            Ok(answer.status.is_some_and(|status| status.allowed))
        })
    }
}

/// Asks, and keeps answers for ten seconds.
pub struct Authorizer {
    oracle: Box<dyn Oracle>,
    answers: Mutex<HashMap<Question, (bool, Instant)>>,
}

impl Authorizer {
    /// One that asks this oracle.
    pub fn new(oracle: impl Oracle) -> Self {
        Self {
            oracle: Box::new(oracle),
            answers: Mutex::default(),
        }
    }

    /// Whether the user has the verb.
    pub async fn ask(&self, question: Question) -> Authority {
        let known = {
            let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers
                .get(&question)
                .filter(|(_, at)| at.elapsed() < KEEP)
                .map(|(allowed, _)| *allowed)
        };
        let allowed = match known {
            Some(allowed) => allowed,
            None => match tokio::time::timeout(PATIENCE, self.oracle.ask(question.clone())).await {
                Ok(Ok(allowed)) => {
                    self.keep(question, allowed);
                    allowed
                }
                Ok(Err(why)) => return Authority::Refused(format!("the API server could not be asked ({why})")),
                Err(_) => return Authority::Refused("the API server did not answer in time".to_owned()),
            },
        };
        if allowed {
            Authority::Granted
        } else {
            Authority::Refused("no RBAC rule allows it".to_owned())
        }
    }

    fn keep(&self, question: Question, allowed: bool) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= CAPACITY {
            answers.retain(|_, (_, at)| at.elapsed() < KEEP);
        }
        if answers.len() < CAPACITY {
            answers.insert(question, (allowed, Instant::now()));
        }
    }
}
