//! What the roles grant, against what the audit log shows: nothing was forbidden, and nothing is granted that nobody used.

use std::collections::BTreeSet;

use anyhow::ensure;
use harness::{AuditLog, AuditQuery, AuditedRequest};
use serde_json::Value;

/// One verb on one resource, as a role grants it to an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    account: String,
    /// Empty: everywhere.
    namespace: String,
    group: String,
    /// With its subresource.
    resource: String,
    /// Empty: all.
    name: String,
    verb: String,
}

impl Grant {
    fn covers(&self, request: &AuditedRequest) -> bool {
        let mut resource = request.resource.clone();
        if !request.subresource.is_empty() {
            resource = format!("{resource}/{}", request.subresource);
        }
        request.verb == self.verb
            && request.group == self.group
            && resource == self.resource
            && (self.namespace.is_empty() || self.namespace == request.namespace)
            && (self.name.is_empty() || self.name == request.name)
    }

    fn line(&self) -> String {
        let Self {
            account,
            namespace,
            group,
            resource,
            name,
            verb,
        } = self;
        let account = account.rsplit(':').next().unwrap_or(account);
        format!("{account}: {verb} {resource}.{group} {namespace}/{name}")
    }
}

/// Why a granted verb may stay unused: account, verb, resource (`*`: any), and the reason.
pub type Excuse = (&'static str, &'static str, &'static str, &'static str);

fn excused(grant: &Grant, excuses: &[Excuse]) -> bool {
    excuses.iter().any(|(account, verb, resource, _)| {
        grant.account.ends_with(&format!(":{account}"))
            && *verb == grant.verb
            && (*resource == "*" || *resource == grant.resource)
    })
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// All that the rendered roles grant to their accounts.
fn grants(objects: &[Value]) -> BTreeSet<Grant> {
    let mut all = BTreeSet::new();
    let bindings = objects.iter().filter(|object| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("RoleBinding"))
    });
    for binding in bindings {
        let subject = &binding["subjects"][0];
        let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
        let account = format!(
            "system:serviceaccount:{}:{}",
            subject["namespace"].as_str().unwrap_or_default(),
            subject["name"].as_str().unwrap_or_default()
        );
        let role = objects.iter().find(|object| {
            object["kind"] == binding["roleRef"]["kind"]
                && object["metadata"]["name"] == binding["roleRef"]["name"]
                && object["metadata"]["namespace"] == binding["metadata"]["namespace"]
        });
        for rule in role.and_then(|role| role["rules"].as_array()).into_iter().flatten() {
            let mut names = texts(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        for name in &names {
                            all.insert(Grant {
                                account: account.clone(),
                                namespace: namespace.to_owned(),
                                group: group.clone(),
                                resource: resource.clone(),
                                name: name.clone(),
                                verb: verb.clone(),
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

/// Sees that the accounts of these objects were refused nothing (but for what `refused` expects), and used all that they have
/// (but for the excused).
pub async fn check(
    audit: &AuditLog,
    query: AuditQuery,
    objects: &[Value],
    excuses: &[Excuse],
    refused: fn(&AuditedRequest) -> bool,
) -> anyhow::Result<()> {
    let granted = grants(objects);
    ensure!(granted.len() > 5, "{granted:?}");
    let accounts: BTreeSet<&String> = granted.iter().map(|grant| &grant.account).collect();
    let seen = audit.requests(&query.with_dry_runs()).await?;
    // Helm takes the bindings away before a pod that is ending has ended.
    let unbound = |account: &str, at: &AuditedRequest| {
        seen.iter().any(|request| {
            request.verb == "delete"
                && matches!(request.resource.as_str(), "rolebindings" | "clusterrolebindings")
                && account.ends_with(&format!(":{}", request.name))
                && request.received <= at.answered
        })
    };
    let requests: Vec<&AuditedRequest> = seen.iter().filter(|request| accounts.contains(&request.user)).collect();
    ensure!(requests.len() > 10, "{} requests of {accounts:?}", requests.len());
    let forbidden: BTreeSet<String> = requests
        .iter()
        .filter(|request| request.forbidden && !refused(request))
        .filter(|request| !unbound(&request.user, request))
        .map(|request| format!("{}: {}", request.user, request.line()))
        .collect();
    ensure!(forbidden.is_empty(), "forbidden: {forbidden:#?}");
    let unused: Vec<&Grant> = granted
        .iter()
        .filter(|grant| {
            !requests
                .iter()
                .any(|request| request.user == grant.account && !request.forbidden && grant.covers(request))
        })
        .collect();
    let unexcused: Vec<String> = unused
        .iter()
        .filter(|grant| !excused(grant, excuses))
        .map(|grant| grant.line())
        .collect();
    ensure!(unexcused.is_empty(), "granted, and never used: {unexcused:#?}");
    Ok(())
}
