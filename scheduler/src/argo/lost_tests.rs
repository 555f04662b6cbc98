//! Applications whose pause or resume was carried out while its answer was lost.

use std::cell::RefCell;

use serde_json::json;
use shared::api::Argo;

use crate::decide::action::{Action, Purpose};
use crate::decide::decider::Decider;
use crate::decide::memory::Outcome;
use crate::decide::tests::world::{NIGHT, World, at, office, schedules};

#[test]
fn a_resume_whose_answer_is_lost_is_not_taken_for_somebody_who_reverts_the_pause() {
    let mut world = World::default();
    world.namespace("shop", "office");
    let web = world.deployment("shop", "web", 3);
    let policy = json!({"automated": {"prune": true, "selfHeal": true}});
    let shop = world.add(
        "argoproj.io",
        &json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"namespace": "argocd", "name": "shop"},
            "spec": {"syncPolicy": policy, "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"}},
            "status": {"resources": [{"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "web"}]},
        }),
    );
    let [closed, open] = [false, true].map(|suspend| {
        let mut schedule = office();
        schedule.argo = Some(Argo::default());
        schedule.suspend = suspend;
        schedules([schedule])
    });
    let (mut decider, mut now) = (Decider::default(), at(NIGHT));
    world.settle_beside(&mut decider, &closed, &mut now, &|_| None, &mut |_| {});
    assert_eq!(
        world.objects[&shop]["spec"]["syncPolicy"]["automated"]["enabled"],
        false
    );

    // Opening: the resume is carried out, and we do not hear of it.
    let unheard: RefCell<Option<Action>> = RefCell::default();
    let lose = |action: &Action| {
        (action.purpose == Purpose::Resume).then(|| {
            unheard.replace(Some(action.clone()));
            Outcome::Failed {
                reason: "Timeout",
                message: "not answered".to_owned(),
                retry_after: None,
            }
        })
    };
    world.settle_beside(&mut decider, &open, &mut now, &lose, &mut |world| {
        if let Some(action) = unheard.take() {
            world.apply(&action).unwrap();
        }
    });
    assert_eq!(world.objects[&shop]["spec"]["syncPolicy"], policy);
    assert_eq!(world.replicas(&web), Some(3));

    // Closing again a moment later is a pause like the first: in the first way, and before anything is scaled.
    let writes = world.settle_beside(&mut decider, &closed, &mut now, &|_| None, &mut |_| {});
    let purposes: Vec<_> = writes.iter().map(|action| action.purpose).collect();
    assert_eq!(purposes, [Purpose::Backup, Purpose::Pause, Purpose::Down]);
    assert_eq!(
        world.objects[&shop]["spec"]["syncPolicy"]["automated"]["enabled"],
        false
    );
    assert_eq!(world.replicas(&web), Some(0));
}
