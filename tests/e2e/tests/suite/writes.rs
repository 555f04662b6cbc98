//! Writes against a real API server: what its refusals look like, and server-side apply.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use cluster::{
    events::{EventSettings, Events},
    follow::Follower,
};
use harness::{ControlPlane, Identity, SOON, wait_for};
use scheduler::{
    act::{Act, ActSettings, Answer, Ended},
    decide::action::{Action, Note, Purpose, Request, Target},
    lease::Leadership,
};
use serde_json::{Value, json};

use crate::clock::RealClock;
use crate::view::{clients, deployment, follow, reference, replicas, sees};

struct World {
    plane: &'static ControlPlane,
    namespace: String,
    follower: Follower,
    act: Act,
}

impl World {
    async fn new(who: &Identity) -> anyhow::Result<Self> {
        let plane = ControlPlane::shared().await?;
        let namespace = plane.namespace("writes", &[]).await?;
        let follower = follow(
            plane,
            &Identity::admin(),
            &[("apps", "Deployment"), ("apps", "StatefulSet")],
        )
        .await?;
        let client = clients(plane, who).await?.calls;
        let settings = EventSettings::new("offhours.platform.io/scheduler", "test");
        let (events, _) = Events::start(client.clone(), Arc::new(RealClock), settings);
        let settings = ActSettings {
            concurrency: 4,
            per_second: None,
            write_timeout: Duration::from_secs(10),
            dry_run: false,
        };
        let act = Act::new(
            client,
            Leadership::alone(),
            Arc::clone(follower.view()),
            Some(events),
            settings,
        );
        Ok(Self {
            plane,
            namespace,
            follower,
            act,
        })
    }

    /// A Deployment, as it is seen.
    async fn deployment(&self, name: &str, count: u32) -> anyhow::Result<Target> {
        let apply = self.plane.kubectl(&["apply", "-n", &self.namespace, "-f", "-"])?;
        apply.stdin(deployment(name, count)).ok().await?;
        self.target(name).await
    }

    async fn target(&self, name: &str) -> anyhow::Result<Target> {
        let object = reference("Deployment", &self.namespace, name);
        let workload = wait_for("the object in the view", SOON, || async {
            self.follower
                .view()
                .workload(&object)
                .ok_or_else(|| anyhow::anyhow!("not there"))
        })
        .await?;
        Ok(Target {
            object,
            version: "v1".into(),
            plural: "deployments".into(),
            uid: Arc::clone(&workload.uid),
        })
    }

    async fn write(&mut self, target: &Target, request: Request) -> Answer {
        self.write_action(action(target, request)).await
    }

    async fn write_action(&mut self, action: Action) -> Answer {
        self.act.submit(action);
        self.act.next().await
    }
}

fn action(target: &Target, request: Request) -> Action {
    Action {
        target: target.clone(),
        request,
        purpose: Purpose::Down,
        schedule: None,
        event: None,
        disown: false,
    }
}

fn patch(operations: Value) -> Request {
    Request::Patch {
        body: serde_json::from_value(operations).unwrap(),
        subresource: None,
        dry_run: false,
    }
}

fn scale(from: u32, to: u32) -> Request {
    patch(json!([
        {"op": "test", "path": "/spec/replicas", "value": from},
        {"op": "replace", "path": "/spec/replicas", "value": to},
    ]))
}

#[tokio::test]
async fn rule_s1_what_does_not_apply_any_more_is_a_conflict_and_what_never_will_is_invalid() -> anyhow::Result<()> {
    let mut world = World::new(&Identity::admin()).await?;
    let web = world.deployment("web", 3).await?;
    let conflicts = [
        ("a failed test", scale(5, 0)),
        (
            "another uid",
            patch(json!([{"op": "test", "path": "/metadata/uid", "value": "other"}])),
        ),
        (
            "a path that is gone",
            patch(json!([{"op": "remove", "path": "/metadata/annotations/none"}])),
        ),
        (
            "a test of what is absent",
            patch(json!([{"op": "test", "path": "/spec/none/x", "value": 1}])),
        ),
        (
            "an old resource version",
            patch(json!([
                {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"},
                {"op": "replace", "path": "/spec/replicas", "value": 0},
            ])),
        ),
    ];
    for (what, request) in conflicts {
        let ended = world.write(&web, request).await.ended;
        ensure!(matches!(ended, Ended::Conflict { .. }), "{what}: {ended:?}");
    }
    let other = Target {
        uid: "other".into(),
        ..web.clone()
    };
    let ended = world.write(&other, Request::Delete).await.ended;
    ensure!(
        matches!(ended, Ended::Conflict { .. }),
        "a delete of another uid: {ended:?}"
    );
    let gone = Target {
        object: reference("Deployment", &world.namespace, "gone"),
        ..web.clone()
    };
    let ended = world.write(&gone, scale(3, 0)).await.ended;
    ensure!(
        matches!(ended, Ended::Conflict { .. }),
        "an object that is gone: {ended:?}"
    );

    let long = "x".repeat(300_000);
    let refusals = [
        (
            "Invalid",
            patch(json!([{"op": "replace", "path": "/spec/replicas", "value": -1}])),
        ),
        (
            "RecordTooLarge",
            patch(json!([{"op": "add", "path": "/metadata/annotations/long", "value": long}])),
        ),
    ];
    for (expected, request) in refusals {
        let ended = world.write(&web, request).await.ended;
        let Ended::Failed { reason, message, .. } = &ended else {
            anyhow::bail!("{expected}: {ended:?}")
        };
        ensure!(
            *reason == expected && message.contains("patch deployments.apps"),
            "{expected}: {ended:?}"
        );
    }
    let answer = world.write(&web, scale(3, 0)).await;
    ensure!(answer.ended == Ended::Done, "{answer:?}");
    ensure!(answer.workload.as_deref().and_then(replicas) == Some(0), "{answer:?}");
    // The answer is in the view before the watch could tell.
    ensure!(
        world
            .follower
            .view()
            .workload(&web.object)
            .as_deref()
            .and_then(replicas)
            == Some(0)
    );
    Ok(())
}

#[tokio::test]
async fn case_6_15_a_missing_right_to_patch_is_named() -> anyhow::Result<()> {
    let mut world = World::new(&Identity::user("nobody@example.com", &[])).await?;
    let web = world.deployment("web", 3).await?;
    let ended = world.write(&web, scale(3, 0)).await.ended;
    let Ended::Failed {
        reason: "Forbidden",
        message,
        ..
    } = &ended
    else {
        anyhow::bail!("{ended:?}")
    };
    ensure!(
        message.contains("patch deployments.apps") && message.contains("403"),
        "{message}"
    );
    Ok(())
}

#[tokio::test]
async fn rule_s7_after_our_write_the_next_server_side_apply_is_no_conflict() -> anyhow::Result<()> {
    let mut world = World::new(&Identity::admin()).await?;
    let apply = |count| {
        let call = world
            .plane
            .kubectl(&["apply", "--server-side", "-n", &world.namespace, "-f", "-"])?;
        anyhow::Ok(call.stdin(deployment("web", count)))
    };
    apply(3)?.ok().await?;
    let (three, four) = (apply(3)?, apply(4)?);
    let web = world.target("web").await?;
    let disowning = Action {
        disown: true,
        ..action(&web, scale(3, 0))
    };
    let answer = world.write_action(disowning).await;
    ensure!(answer.ended == Ended::Done, "{answer:?}");
    ensure!(
        world.act.stats().counts().contains(&("disown", "done", 1)),
        "{:?}",
        world.act.stats().counts()
    );
    three.ok().await?;
    four.ok().await?;
    sees(&world.follower, &web.object, Some(4)).await
}

#[tokio::test]
async fn case_2_24_of_an_object_that_others_apply_we_own_nothing_that_they_want_to_remove() -> anyhow::Result<()> {
    let mut world = World::new(&Identity::admin()).await?;
    let apply = |manifest: String| {
        let (namespace, manager) = (&world.namespace, "--field-manager=argocd-controller");
        let call = ["apply", "--server-side", manager, "-n", namespace, "-f", "-"];
        anyhow::Ok(world.plane.kubectl(&call)?.stdin(manifest))
    };
    let image = "image: registry.example/c:1";
    let with = deployment("web", 3).replace(image, &format!("{image}, env: [{{name: X, value: x}}]"));
    apply(with)?.ok().await?;
    let without = apply(deployment("web", 3))?;
    let web = world.target("web").await?;
    for (from, to) in [(3, 0), (0, 3)] {
        let answer = world.write_action(action(&web, scale(from, to))).await;
        ensure!(answer.ended == Ended::Done, "{answer:?}");
    }
    let get = |output| {
        let call = [
            "get",
            "deployment/web",
            "-n",
            &world.namespace,
            "--show-managed-fields",
            "-o",
            output,
        ];
        world.plane.kubectl(&call)
    };
    let owned = get(r#"jsonpath={.metadata.managedFields[?(@.manager=="offhours")].fieldsV1}"#)?;
    ensure!(
        owned.ok().await?.stdout == r#"{"f:spec":{"f:replicas":{}}}"#,
        "{}",
        owned.ok().await?.stdout
    );
    without.ok().await?;
    let env = get("jsonpath={.spec.template.spec.containers[0].env}")?
        .ok()
        .await?
        .stdout;
    ensure!(env.is_empty(), "{env}");
    Ok(())
}

#[tokio::test]
async fn an_event_is_what_kubectl_shows() -> anyhow::Result<()> {
    let mut world = World::new(&Identity::admin()).await?;
    let web = world.deployment("web", 3).await?;
    let note = Note {
        reason: "PutDownAgain",
        message: "somebody set replicas to 3".to_owned(),
        warning: true,
    };
    let answer = world
        .write_action(Action {
            event: Some(note),
            ..action(&web, scale(3, 0))
        })
        .await;
    ensure!(answer.ended == Ended::Done, "{answer:?}");
    let events = world
        .plane
        .kubectl(&["events", "-n", &world.namespace, "--for", "deployment/web"])?;
    wait_for("the event", SOON, || async {
        let shown = events.ok().await?.stdout;
        ensure!(
            shown.contains("PutDownAgain") && shown.contains("somebody set replicas to 3"),
            "{shown}"
        );
        Ok(())
    })
    .await
}
