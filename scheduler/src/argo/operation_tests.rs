//! Operations that run at closing time.

use serde_json::json;
use shared::api::Argo;

use super::tests::{Night, application, argo_schedule, night, night_of, usual_policy};
use crate::decide::action::Purpose;
use crate::decide::tests::world::{NIGHT, at};

#[test]
fn rule_a3_an_operation_in_flight_is_waited_for() {
    let mut night = night();
    let mut object = application("shop", &usual_policy(), &["web", "api"]);
    object["status"]["operationState"] = json!({"phase": "Running", "startedAt": "2026-12-01T21:59:58Z"});
    let shop = night.add(&object);
    let began = at(NIGHT);
    let mut second = 0;
    let reference = shop.clone();
    let writes = night.beside(NIGHT, &mut |world| {
        second += 1;
        if second == 60 {
            world.edit(&reference, |value| {
                value["status"]["operationState"]["phase"] = "Succeeded".into();
            });
        }
    });
    assert_eq!(writes.last().unwrap().purpose, Purpose::Down);
    assert!(night.now.duration_since(began).as_secs() > 50, "{}", night.now);
    assert_eq!(night.replicas(), [Some(0), Some(0)]);
}

#[test]
fn an_operation_that_does_not_end_is_reported_and_nothing_is_scaled() {
    let mut night = night();
    let mut object = application("shop", &usual_policy(), &["web", "api"]);
    object["status"]["operationState"] = json!({"phase": "Running", "startedAt": "2026-12-01T21:59:58Z"});
    night.add(&object);
    night.at(NIGHT);
    night.at("2026-12-01T22:30:00Z");
    assert_eq!(night.reason(&night.web), Some("OperationRunning"));
    assert_eq!(night.replicas(), [Some(3), Some(2)]);
}

/// application-controller: while an operation is `Terminating`, what it created for hooks is deleted, and it ends as failed.
#[test]
fn rule_a3_where_the_schedule_says_so_an_operation_that_does_not_end_is_terminated() {
    let mut schedule = argo_schedule();
    schedule.argo = Some(Argo {
        terminate: true,
        ..Argo::default()
    });
    let mut night = night_of(schedule);
    let mut object = application("shop", &usual_policy(), &["web", "api"]);
    object["status"]["operationState"] = json!({"phase": "Running", "startedAt": "2026-12-01T21:59:58Z"});
    let shop = night.add(&object);
    night.at(NIGHT);
    let phase = |night: &Night| night.world.objects[&shop]["status"]["operationState"]["phase"].clone();
    assert_eq!(phase(&night), "Running", "it has its time");
    let writes = night.at("2026-12-01T22:06:00Z");
    assert_eq!(phase(&night), "Terminating");
    let told: Vec<_> = writes.iter().filter_map(|write| write.event.as_ref()).collect();
    assert!(told.iter().any(|note| note.reason == "OperationTerminated"), "{told:?}");
    assert_eq!(night.replicas(), [Some(3), Some(2)], "it has not ended yet");
    let again = night.at("2026-12-01T22:30:00Z");
    assert!(again.is_empty(), "terminated once: {again:?}");

    night.world.edit(&shop, |value| {
        value["status"]["operationState"]["phase"] = "Failed".into();
    });
    night.at("2026-12-01T22:31:00Z");
    assert_eq!(night.replicas(), [Some(0), Some(0)]);
}
