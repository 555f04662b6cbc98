//! Who asks.

/// Somebody whom the API server knows by a client certificate of the control plane's own authority.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The user name, as the API server and the audit log see it.
    pub user: String,
    /// The groups (besides `system:authenticated`).
    pub groups: Vec<String>,
}

impl Identity {
    /// May do everything (`system:masters`): who sets the stage in tests.
    pub fn admin() -> Self {
        Self::user("harness-admin", &["system:masters"])
    }

    /// A person; what they may do is up to the RBAC objects that a test applies.
    pub fn user(name: &str, groups: &[&str]) -> Self {
        Self {
            user: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        }
    }

    /// A service account: the same user and groups as with its token, without a request for one.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::user(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")],
        )
    }

    /// The same in one more group.
    #[must_use]
    pub fn in_group(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    /// A text fit for a file name, one per identity.
    pub(crate) fn file_stem(&self) -> String {
        let all = std::iter::once(&self.user)
            .chain(&self.groups)
            .cloned()
            .collect::<Vec<_>>()
            .join("+");
        all.chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "+-.".contains(c) {
                    c
                } else {
                    '_'
                }
            })
            .take(150)
            .collect()
    }
}
