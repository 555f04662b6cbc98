//! The `OffHoursSchedule` custom resource, version v1alpha1: what people write, what we report back, and the one parser of
//! it (`validate`) that webhook, scheduler and command line share.

mod spec;
mod status;
mod structure;
pub(crate) mod validate;

pub use spec::{
    Argo, CalendarSource, CatchUp, ConfigMapKey, Cron, Enforcement, EnforcementMode, Exception, Flux, Hpa, HpaMode,
    KindFilter, OffHoursSchedule, OffHoursScheduleSpec, ScheduleSelector, ScheduledState, Startup, Subjects,
    UnfinishedRollouts,
};
pub use status::{Condition, FOUGHT_OVER, OffHoursScheduleStatus, PlannedTransition, WorkloadCounts};
pub use structure::{definition, read_document};
pub(crate) use validate::message;
pub use validate::{CalendarTexts, Validated, validate, validate_name, validate_with};

/// The finalizer that restores what a schedule put to sleep before the schedule goes away.
pub const FINALIZER: &str = "offhours.platform.io/restore";

/// The API group of `OffHoursSchedule`.
pub const GROUP: &str = "offhours.platform.io";

/// The version of `OffHoursSchedule` that this build reads and writes.
pub const VERSION: &str = "v1alpha1";
/// Name of the schedule by which the webhook finds out whether the API server reaches it: asked for in a dry run that only the
/// webhook refuses.
pub const PROBE: &str = "offhours-webhook-probe";

#[cfg(test)]
mod tests;
