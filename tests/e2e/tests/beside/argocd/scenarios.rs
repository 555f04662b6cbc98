//! The four scenarios of the examples, with Applications of the names that they say: one pass by the HTTP API and the servers
//! in the cluster leave the same behind.

use anyhow::ensure;
use harness::{ARGOCD_NAMESPACE, wait_for};
use serde_json::{Value, json};

use super::stage::{LATER, Shop, Stage, without_false};

const PLACES: [&str; 4] = ["shop-dev", "billing-dev", "search-dev", "media-dev"];
const APPLICATIONS: [&str; 2] = ["search", "media"];

const BY_NIGHT: [&str; 8] = [
    "collector 1 null",
    // Its Application has a protected workload: strict mode leaves all of it alone.
    "gallery 2 null",
    "handbook 1 null",
    "invoices 0 \"3\"",
    "ledger 1 null",
    "search-api 0 \"2\"",
    "storefront 0 \"2\"",
    "transcoder 1 null",
];

/// What there is of the scenarios: a line for each Deployment, and the policies of both Applications.
#[derive(Debug, PartialEq)]
struct Seen {
    deployments: Vec<String>,
    policies: Vec<Value>,
}

struct Scenarios {
    shop: Shop,
    by_day: Seen,
}

impl Scenarios {
    async fn start(stage: &'static Stage) -> anyhow::Result<Self> {
        let mut shop = Shop::on(stage, "scenarios", &[]).await?;
        "default".clone_into(&mut shop.schedule);
        let examples = harness::repository().join("manifests/examples/scenarios");
        for number in ["1-namespace", "2-workload"] {
            let text = std::fs::read_to_string(examples.join(format!("{number}.yaml")))?;
            stage.cluster.plane.apply(&text).await?;
        }
        for (number, name) in ["3-argo-manual", "4-mixed"].into_iter().zip(APPLICATIONS) {
            let text = std::fs::read_to_string(examples.join(format!("{number}.yaml")))?;
            let repository = stage.argo.repository(name).await?;
            repository.commit(&[(&format!("scenarios/{number}.yaml"), &text)])?;
            let application = std::fs::read_to_string(examples.join(format!("argocd/{name}.yaml")))?;
            let theirs = "https://git.example.com/platform/scenarios.git";
            ensure!(application.contains(theirs), "{application}");
            stage
                .cluster
                .plane
                .apply(&application.replace(theirs, &repository.url()))
                .await?;
            name.clone_into(&mut shop.name);
            shop.until_synced().await?;
        }
        let by_day = see(stage).await?;
        Ok(Self { shop, by_day })
    }

    /// As it should be by night: scenario 3 is paused, and nothing else but the pause has changed of its policy.
    fn is_night(&self, seen: &Seen) -> anyhow::Result<()> {
        ensure!(seen.deployments == BY_NIGHT, "{seen:?}");
        let (search, media) = (&seen.policies[0], &seen.policies[1]);
        ensure!(*media == self.by_day.policies[1], "{media}");
        let mut resumed = search.clone();
        // Paused in either way: Argo CD before 3.1 does not know `enabled`.
        match &search["automated"] {
            Value::Null => resumed["automated"] = self.by_day.policies[0]["automated"].clone(),
            block => {
                ensure!(block["enabled"] == false, "{search}");
                resumed["automated"].as_object_mut().unwrap().remove("enabled");
            }
        }
        ensure!(resumed == self.by_day.policies[0], "{search}");
        Ok(())
    }
}

async fn see(stage: &Stage) -> anyhow::Result<Seen> {
    let mut policies = Vec::new();
    for name in APPLICATIONS {
        let application = stage.get("application", ARGOCD_NAMESPACE, name).await?;
        policies.push(without_false(&application["spec"]["syncPolicy"]));
    }
    let deployments = stage.cluster.deployments(&PLACES).await?;
    Ok(Seen { deployments, policies })
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn the_four_scenarios_by_one_pass_through_the_http_api() -> anyhow::Result<()> {
    let stage = Stage::without_servers().await?;
    let scenarios = Scenarios::start(stage).await?;
    let shop = &scenarios.shop;
    let token = stage.argo.token("offhours", LATER * 30).await?;
    let server = stage.argo.address();

    let ended = shop.one_pass("shutdown", &server, &token).await?;
    ensure!(ended.code == 0, "{}", ended.text());
    ensure!(ended.text().contains("ApplicationProtected"), "{}", ended.text());
    // Scenario 2 is of single workloads.
    let of_workloads = shop.one_pass_in("shutdown", "deployment", &server, &token).await?;
    ensure!(of_workloads.code == 0, "{}", of_workloads.text());
    scenarios.is_night(&see(stage).await?)?;

    for scope in ["namespace", "deployment"] {
        let ended = shop.one_pass_in("startup", scope, &server, &token).await?;
        ensure!(ended.code == 0, "{}", ended.text());
    }
    let seen = see(stage).await?;
    ensure!(seen == scenarios.by_day, "{seen:?}");
    Ok(())
}

#[tokio::test]
#[ignore = "SKIPPED: needs the real Argo CD (make test-argocd)"]
async fn the_four_scenarios_by_the_servers() -> anyhow::Result<()> {
    let stage = Stage::shared().await?;
    let scenarios = Scenarios::start(stage).await?;
    let shop = &scenarios.shop;
    // K8s-OffHours finds them by the list on the namespace, and so do the servers.
    let argo = json!({"pause": true, "strictProtected": true});
    shop.turn_with("Down", "Off", &argo).await?;
    wait_for("the night", LATER, || async { scenarios.is_night(&see(stage).await?) }).await?;
    shop.until_told("ApplicationProtected").await?;

    shop.turn_with("Up", "Off", &argo).await?;
    wait_for("the morning", LATER, || async {
        let seen = see(stage).await?;
        ensure!(seen == scenarios.by_day, "{seen:?}, not {:?}", scenarios.by_day);
        Ok(())
    })
    .await
}
