//! Random histories of three replicas: freezes, faults, deaths, skewed clocks; the one promise is checked on each.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tokio::time::sleep;

use super::double::{Fault, Replica, Server, assert_only_the_holder_wrote};

#[derive(Debug, Clone)]
enum Step {
    Freeze(usize),
    Thaw(usize),
    Fault(usize, Fault),
    Heal(usize),
    Restart(usize, i64),
    Pause(u64),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Hang),
        Just(Fault::AnswerLost),
        prop_oneof![Just(403_u16), Just(409), Just(429), Just(500)].prop_map(Fault::Status),
        (0_u64..400).prop_map(|time| Fault::Slow(Duration::from_millis(time))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_usize..3).prop_map(Step::Freeze),
        (0_usize..3).prop_map(Step::Thaw),
        (0_usize..3, fault()).prop_map(|(who, fault)| Step::Fault(who, fault)),
        (0_usize..3).prop_map(Step::Heal),
        (0_usize..3, -90_i64..90).prop_map(|(who, skew)| Step::Restart(who, skew)),
        (1_u64..3000).prop_map(Step::Pause),
        (1_u64..300).prop_map(Step::Pause),
    ]
}

async fn play(steps: Vec<Step>) {
    let server = Server::new();
    let mut lives = 0;
    let mut start = |skew: i64| {
        lives += 1;
        Replica::start(&server, &format!("r{lives}"), skew)
    };
    let mut replicas = vec![start(0), start(45), start(-45)];
    for step in steps {
        match step {
            Step::Freeze(who) => replicas[who].freezer.freeze(),
            Step::Thaw(who) => replicas[who].freezer.thaw(),
            Step::Fault(who, fault) => server.fault(&replicas[who].name, Some(fault)),
            Step::Heal(who) => server.fault(&replicas[who].name, None),
            Step::Restart(who, skew) => std::mem::replace(&mut replicas[who], start(skew)).kill(),
            Step::Pause(time) => sleep(Duration::from_millis(time)).await,
        }
    }
    for replica in &replicas {
        replica.freezer.thaw();
        server.fault(&replica.name, None);
    }
    sleep(Duration::from_secs(10)).await;
    assert_only_the_holder_wrote(&server);
    let leaders = replicas
        .iter()
        .filter(|replica| replica.leadership.state().leading)
        .count();
    assert_eq!(leaders, 1, "after quiet time one leads");
    let holder = server.holder();
    assert!(
        replicas
            .iter()
            .any(|replica| Some(&replica.name) == holder.as_ref() && replica.leadership.state().leading)
    );
    replicas.into_iter().for_each(Replica::kill);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn in_every_history_only_the_holder_writes_and_in_the_end_one_leads(steps in vec(step(), 1..50)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(steps));
    }
}
