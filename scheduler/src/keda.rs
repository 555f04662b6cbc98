//! KEDA: the ScaledObject sleeps by its own pause; what other pauses of its owner mean for that. (Client not required.)

use shared::workload::Workload;

/// Pauses under which KEDA lets the target stand where it is, or never scales it out: nothing would bring it back from 0.
const FREEZES: [&str; 2] = ["autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-scale-out"];

/// Whether a resource is KEDA's `ScaledObject`.
pub fn is_scaled_object(group: &str, kind: &str) -> bool {
    kind == "ScaledObject" && group == "keda.sh"
}

/// The pause of its owner under which a `ScaledObject` that is put to sleep would lose its target's number.
///
/// With a number of its own beside it (`paused-replicas`), that is what KEDA brings the target to by day.
pub fn frozen_by(workload: &Workload) -> Option<&'static str> {
    let kind = &workload.kind;
    if !is_scaled_object(&kind.group, &kind.kind) || workload.knobs.first().is_some_and(|knob| knob.value.is_some()) {
        return None;
    }
    FREEZES.into_iter().find(|key| {
        // KEDA takes what Go calls false for false, and everything else for true.
        workload
            .annotation(key)
            .is_some_and(|text| !matches!(text, "0" | "f" | "F" | "false" | "False" | "FALSE"))
    })
}
