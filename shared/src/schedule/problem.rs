//! What is wrong with a schedule, said so that its author can mend it.

use std::fmt;

/// A mistake that makes a schedule unusable: nothing is done by such a schedule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where it is, such as `spec.downtime[0]` or an annotation's key.
    pub path: String,
    /// What is wrong, at which place in the value, and the remedy.
    pub message: String,
}

/// Something legal that is probably not meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// Where it is, such as `spec.downtime[0]` or an annotation's key.
    pub path: String,
    /// What is odd, and the remedy.
    pub message: String,
}

impl Problem {
    /// A problem at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }

    /// The same problem with `prefix` put before its path.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        self.path.insert_str(0, prefix);
        self
    }
}

impl Warning {
    /// A warning at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }

    /// The same warning with `prefix` put before its path.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        self.path.insert_str(0, prefix);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for Problem {}

/// `text` for a message: quoted, control characters escaped, and only its beginning where it is long.
pub(crate) fn quoted(text: &str) -> String {
    format!("`{}`", crate::short::escaped(text))
}
