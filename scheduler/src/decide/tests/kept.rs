//! How many are kept while down.

use serde_json::json;
use shared::annotations::DownReplicas;

use super::cases::{pass, shop};
use super::world::{MORNING, NIGHT, office, schedules};

#[test]
fn rule_s1_an_absent_count_is_put_down_and_held_in_one_write() {
    for (kind, spec) in [
        ("StatefulSet", json!({})),
        ("ScaledObject", json!({"scaleTargetRef": {"name": "web"}})),
    ] {
        let (mut world, _) = shop();
        let mut schedule = office();
        schedule.down_replicas = DownReplicas::Count(2);
        let schedules = schedules([schedule]);
        let object = world.create(kind, "shop", "db", spec);
        let before = world.workload(&object).knobs;
        assert_eq!(pass(&mut world, &schedules, NIGHT), 1, "{kind}");
        let held = world.workload(&object).knobs[0]
            .value
            .as_ref()
            .and_then(shared::record::count);
        assert_eq!(held, Some(1), "{kind}");
        assert_eq!(pass(&mut world, &schedules, NIGHT), 0, "{kind}");
        assert_eq!(pass(&mut world, &schedules, MORNING), 1, "{kind}");
        assert_eq!(world.workload(&object).knobs[0].value, before[0].value, "{kind}");
    }
}

#[test]
fn what_is_kept_while_down_follows_the_schedule() {
    let (mut world, _) = shop();
    let keeping = |down| {
        let mut schedule = office();
        schedule.down_replicas = down;
        schedules([schedule])
    };
    let object = world.deployment("shop", "web", 4);
    pass(&mut world, &keeping(DownReplicas::Count(0)), NIGHT);
    for (down, held) in [
        (DownReplicas::Count(2), 2),
        (DownReplicas::Percent(25), 1),
        (DownReplicas::Count(9), 4),
        (DownReplicas::Count(0), 0),
    ] {
        assert_eq!(pass(&mut world, &keeping(down), NIGHT), 1, "{down}");
        assert_eq!(world.replicas(&object), Some(held), "{down}");
        assert_eq!(pass(&mut world, &keeping(down), NIGHT), 0, "{down}");
    }
    pass(&mut world, &keeping(DownReplicas::Count(0)), MORNING);
    assert_eq!(world.replicas(&object), Some(4));
}
