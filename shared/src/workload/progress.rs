//! Where a workload stands: ready, finished, or on its way from one revision to another.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Rollout;
use crate::kinds::Readiness;

/// Progress deadline that Kubernetes assumes where a Deployment names none; we use it for kinds that have none, too.
const PROGRESS_DEADLINE: SignedDuration = SignedDuration::from_secs(600);

fn number(map: &Value, field: &str) -> i64 {
    map.get(field).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn condition<'v>(status: &'v Value, name: &str) -> Option<&'v Value> {
    status
        .get("conditions")?
        .as_array()?
        .iter()
        .find(|condition| condition.get("type").and_then(Value::as_str) == Some(name))
}

/// Whether a Job has failed for good or completed.
pub(super) fn finished(status: &Value) -> bool {
    ["Complete", "Failed"]
        .into_iter()
        .any(|name| condition(status, name).and_then(|condition| condition.get("status")?.as_str()) == Some("True"))
}

fn observed(metadata: &Value, status: &Value) -> bool {
    // Argo Rollouts writes it as text.
    let observed = match status.get("observedGeneration") {
        Some(Value::String(text)) => text.parse().unwrap_or(0),
        Some(value) => value.as_i64().unwrap_or(0),
        None => 0,
    };
    observed >= number(metadata, "generation")
}

pub(super) fn ready(readiness: Readiness, metadata: &Value, spec: &Value, status: &Value) -> bool {
    match readiness {
        Readiness::None => true,
        Readiness::NotPaused => {
            let annotations = metadata.get("annotations").and_then(Value::as_object);
            let pausing = annotations
                .into_iter()
                .flatten()
                .any(|(key, _)| key.starts_with("autoscaling.keda.sh/paused"));
            let paused = condition(status, "Paused").and_then(|paused| paused.get("status")?.as_str());
            pausing || paused != Some("True")
        }
        Readiness::Replicas(field) => {
            let wanted = spec.get("replicas").and_then(Value::as_i64).unwrap_or(1);
            observed(metadata, status) && number(status, field) >= wanted
        }
    }
}

/// Whether a night would change which revision runs: what sleeps with pods of an old revision wakes with the new one only.
pub(super) fn rollout(kind: &str, metadata: &Value, spec: &Value, status: &Value) -> Rollout {
    match kind {
        "Deployment" => {
            let old_pods = number(status, "replicas") > number(status, "updatedReplicas");
            // Of what its controller has not seen yet, no pod runs that could be of an old revision.
            if !old_pods && (observed(metadata, status) || number(status, "replicas") == 0) {
                return Rollout::Settled;
            }
            if old_pods && spec.get("paused").and_then(Value::as_bool) == Some(true) {
                return Rollout::Unfinished("its rollout is paused with pods of two revisions");
            }
            let progressing = condition(status, "Progressing");
            if old_pods
                && progressing.is_some_and(|condition| condition.get("status").and_then(Value::as_str) == Some("False"))
            {
                return Rollout::Unfinished("its rollout exceeded the progress deadline");
            }
            let allowed = spec
                .get("progressDeadlineSeconds")
                .and_then(Value::as_i64)
                .map_or(PROGRESS_DEADLINE, |seconds| SignedDuration::from_secs(seconds.max(0)));
            let deadline = progressing
                .and_then(|condition| condition.get("lastUpdateTime")?.as_str()?.parse::<Timestamp>().ok())
                .and_then(|at| at.checked_add(allowed).ok());
            Rollout::Moving { deadline }
        }
        "StatefulSet" => {
            let text = |field: &str| status.get(field).and_then(Value::as_str).unwrap_or_default();
            if text("currentRevision") == text("updateRevision") || text("updateRevision").is_empty() {
                return Rollout::Settled;
            }
            let strategy = spec.get("updateStrategy").unwrap_or(&Value::Null);
            if strategy.get("type").and_then(Value::as_str) == Some("OnDelete") {
                return Rollout::Unfinished("its update strategy is OnDelete and it has pods of two revisions");
            }
            if number(strategy.get("rollingUpdate").unwrap_or(&Value::Null), "partition") > 0 {
                return Rollout::Unfinished("its rollout is partitioned and it has pods of two revisions");
            }
            Rollout::Moving { deadline: None }
        }
        "DaemonSet" => {
            let mixed = number(status, "updatedNumberScheduled") < number(status, "desiredNumberScheduled");
            let on_delete = spec.pointer("/updateStrategy/type").and_then(Value::as_str) == Some("OnDelete");
            match (mixed, on_delete) {
                (false, _) => Rollout::Settled,
                (true, true) => Rollout::Unfinished("its update strategy is OnDelete and it has pods of two revisions"),
                (true, false) => Rollout::Moving { deadline: None },
            }
        }
        "Rollout" => {
            let text = |field: &str| status.get(field).and_then(Value::as_str).unwrap_or_default();
            if text("stableRS").is_empty() || text("stableRS") == text("currentPodHash") {
                Rollout::Settled
            } else if condition(status, "Paused").and_then(|paused| paused.get("status")?.as_str()) == Some("True") {
                Rollout::Unfinished("its rollout is paused with pods of two revisions")
            } else {
                Rollout::Moving { deadline: None }
            }
        }
        _ => Rollout::Settled,
    }
}
