//! The built binary: dev mode beside a webhook in the cluster, commands about the registration, and what is fought over.

use anyhow::ensure;
use harness::{Identity, KubectlOutput, Product, SOON, Signal, free_port, http_get, wait_for};
use serde_json::Value;
use webhook::reach::{Reach, probe};

use crate::product::{Cluster, OWN_NAMESPACE, deployment, schedule};

/// A laptop from which the cluster is served.
struct Laptop {
    product: Product,
    ops: u16,
}

impl Laptop {
    async fn serve(cluster: &Cluster, who: &Identity) -> anyhow::Result<Self> {
        let ops = free_port()?;
        let (ops_address, webhook) = (format!("127.0.0.1:{ops}"), format!("127.0.0.1:{}", free_port()?));
        let environment = [
            ("OFFHOURS_OPS_ADDRESS", ops_address.as_str()),
            ("OFFHOURS_WEBHOOK_ADDRESS", webhook.as_str()),
            ("POD_NAMESPACE", OWN_NAMESPACE),
            ("HOSTNAME", "Anas-Laptop.local"),
            ("OFFHOURS_DRAIN_TIMEOUT", "4s"),
            ("OFFHOURS_LEASE_DURATION", "3s"),
            ("OFFHOURS_LEASE_RENEW_DEADLINE", "2500ms"),
            ("OFFHOURS_LEASE_RETRY_PERIOD", "200ms"),
            ("OFFHOURS_LEASE_CALL_TIMEOUT", "1s"),
            ("OFFHOURS_WRITE_TIMEOUT", "1s"),
        ];
        let arguments = ["webhook", "--dev", "--dev-host=127.0.0.1"];
        let product = Product::start(&cluster.plane, who, &arguments, &environment)?;
        product.wait_until_ready(ops, "/readyz", SOON).await?;
        Ok(Self { product, ops })
    }
}

/// Rulings with this outcome, as the metrics count them.
async fn rulings(port: u16, outcome: &str) -> anyhow::Result<u64> {
    let (_, text) = http_get(port, "/metrics").await?;
    let label = format!("outcome=\"{outcome}\"");
    let of = text
        .lines()
        .filter(|line| line.starts_with("offhours_rulings_total{") && line.contains(&label));
    Ok(of.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum())
}

struct Night {
    cluster: Cluster,
    ana: Identity,
    product: Product,
    ops: u16,
}

impl Night {
    /// A Deployment of 3 that sleeps, and both servers.
    async fn falls() -> anyhow::Result<Self> {
        let cluster = Cluster::start("dev-mode").await?;
        cluster.install_crd().await?;
        cluster.plane.apply(&schedule("night", "Down")).await?;
        cluster.plane.kubectl(&["create", "namespace", "shop"])?.ok().await?;
        let label = "offhours.platform.io/schedule=night";
        cluster
            .plane
            .kubectl(&["label", "namespace", "shop", label])?
            .ok()
            .await?;
        let apply = cluster.plane.kubectl(&["apply", "-n", "shop", "-f", "-"])?;
        apply.stdin(deployment("web", 3)).ok().await?;
        let (product, ops) = cluster.run().await?;
        cluster.become_so(&["shop"], &["web 0 \"3\""]).await?;
        let ana = Identity::user("ana", &["system:masters"]);
        let night = Self {
            cluster,
            ana,
            product,
            ops,
        };
        wait_for("the API server to call the webhook", SOON, || async {
            let output = night.scale(3, true).await?;
            ensure!(output.warnings().len() == 1, "{}", output.stderr);
            Ok(())
        })
        .await?;
        Ok(night)
    }

    async fn scale(&self, replicas: u32, dry: bool) -> anyhow::Result<KubectlOutput> {
        let replicas = format!("--replicas={replicas}");
        let mut arguments = vec!["scale", "-n", "shop", "deploy/web", &replicas];
        if dry {
            arguments.push("--dry-run=server");
        }
        self.cluster.plane.kubectl_as(&self.ana, &arguments)?.ok().await
    }

    async fn condition(&self, name: &str) -> anyhow::Result<Value> {
        let shown = self
            .cluster
            .plane
            .kubectl(&["get", "ohs", "night", "-o", "json"])?
            .ok()
            .await?;
        let schedule: Value = serde_json::from_str(&shown.stdout)?;
        let conditions = schedule["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions
            .into_iter()
            .find(|condition| condition["type"] == name)
            .unwrap_or_default())
    }

    /// Names of configurations of dev mode.
    async fn of_dev_mode(&self) -> anyhow::Result<Vec<String>> {
        let kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
        let arguments = ["get", kinds, "-l", "offhours.platform.io/dev", "-o", "name"];
        let shown = self.cluster.plane.kubectl(&arguments)?.ok().await?;
        Ok(shown.stdout.lines().map(str::to_owned).collect())
    }

    /// A raise is held, with one warning, by whoever's metrics are here.
    async fn is_judged_by(&self, ops: u16) -> anyhow::Result<()> {
        wait_for("the raise to be judged by one webhook", SOON, || async {
            let before = rulings(ops, "held").await?;
            let output = self.scale(4, true).await?;
            ensure!(output.warnings().len() == 1, "{}", output.stderr);
            ensure!(rulings(ops, "held").await? > before, "the other one judged");
            Ok(())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_mode_takes_over_politely_and_leaves_nothing_behind_and_fights_are_told() -> anyhow::Result<()> {
    let night = Night::falls().await?;
    rule_a8_fought_over_is_degraded(&night).await?;
    dev_mode(&night).await?;
    case_5_19_whether_the_api_server_reaches_it_is_found_out(&night).await?;
    check_and_uninstall(&night).await?;
    let found = probe(night.cluster.plane.admin().await?).await;
    ensure!(matches!(found, Reach::Unreached(_)), "{found:?}");
    // The window ends, and the fight with it.
    night.cluster.plane.apply(&schedule("night", "Up")).await?;
    wait_for("the fight to have ended", SOON, || async {
        let (degraded, fight) = (night.condition("Degraded").await?, night.condition("FoughtOver").await?);
        ensure!(
            degraded["status"] == "False" && fight["status"] == "False",
            "{degraded} {fight}"
        );
        ensure!(fight["reason"] == "WindowEnded", "{fight}");
        Ok(())
    })
    .await?;
    night.product.check_running()
}

async fn case_5_19_whether_the_api_server_reaches_it_is_found_out(night: &Night) -> anyhow::Result<()> {
    wait_for("a self-test to come through", SOON, || async {
        let (_, text) = http_get(night.ops, "/metrics").await?;
        ensure!(text.contains("\noffhours_webhook_reached 1"), "{text}");
        Ok(())
    })
    .await?;
    let checked = night.cluster.offhours(&["webhook", "check"], &[]).await?;
    ensure!(
        checked.stdout.contains("the API server reaches it"),
        "{}",
        checked.text()
    );
    // It is a dry run, and refused besides.
    let schedules = night.cluster.plane.kubectl(&["get", "ohs", "-o", "name"])?.ok().await?;
    ensure!(schedules.stdout.lines().count() == 1, "{}", schedules.stdout);
    Ok(())
}

async fn rule_a8_fought_over_is_degraded(night: &Night) -> anyhow::Result<()> {
    for replicas in 4..10 {
        night.scale(replicas, false).await?;
    }
    wait_for("the schedule to be Degraded", SOON, || async {
        let degraded = night.condition("Degraded").await?;
        ensure!(
            degraded["status"] == "True" && degraded["reason"] == "HeldRepeatedly",
            "{degraded}"
        );
        let message = degraded["message"].as_str().unwrap_or_default();
        ensure!(
            message.contains("\"web\" in shop was held 6 times") && message.contains("argo: {pause: true}"),
            "{message}"
        );
        Ok(())
    })
    .await
}

async fn dev_mode(night: &Night) -> anyhow::Result<()> {
    let first = Laptop::serve(&night.cluster, &night.ana).await?;
    // Ana is no account of the product's, though the webhook runs under her name.
    night.is_judged_by(first.ops).await?;
    ensure!(
        rulings(night.ops, "stood-aside").await? > 0,
        "the webhook in the cluster was not asked"
    );
    ensure!(
        night.of_dev_mode().await?.len() == 2,
        "{:?}",
        night.of_dev_mode().await?
    );
    let checked = night.cluster.person(&["webhook", "check"]).await?;
    ensure!(
        checked
            .stdout
            .contains("\"offhours-dev-anas-laptop-local\" points to a machine"),
        "{}",
        checked.text()
    );

    // Killed, it leaves its configurations; the webhook in the cluster judges again.
    first.product.kill()?;
    night.is_judged_by(night.ops).await?;
    ensure!(night.of_dev_mode().await?.len() == 2);
    // One of an earlier version, under another name.
    let get = [
        "get",
        "validatingwebhookconfiguration",
        "offhours-dev-anas-laptop-local",
        "-o",
        "json",
    ];
    let mut old: Value = serde_json::from_str(&night.cluster.plane.kubectl(&get)?.ok().await?.stdout)?;
    old["metadata"] = serde_json::json!({"name": "offhours-dev-old", "labels": old["metadata"]["labels"]});
    night.cluster.plane.apply(&old.to_string()).await?;

    let second = Laptop::serve(&night.cluster, &night.ana).await?;
    let found = night.of_dev_mode().await?;
    ensure!(
        found.len() == 2 && !found.iter().any(|name| name.contains("old")),
        "{found:?}"
    );
    night.is_judged_by(second.ops).await?;
    // Ctrl-C.
    second.product.signal(Signal::INT)?;
    let ended = second.product.wait_for_exit(SOON).await?;
    ensure!(ended.success(), "{ended}: {}", second.product.log());
    ensure!(
        night.of_dev_mode().await?.is_empty(),
        "{:?}",
        night.of_dev_mode().await?
    );
    night.is_judged_by(night.ops).await
}

async fn check_and_uninstall(night: &Night) -> anyhow::Result<()> {
    let cluster = &night.cluster;
    let checked = cluster.person(&["webhook", "check"]).await?;
    ensure!(
        checked.code == 0 && checked.stdout.contains("is registered as it should be"),
        "{}",
        checked.text()
    );
    let patch = r#"[{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}]"#;
    let arguments = [
        "patch",
        "mutatingwebhookconfiguration",
        "offhours",
        "--type=json",
        "-p",
        patch,
    ];
    cluster.plane.kubectl(&arguments)?.ok().await?;
    let checked = cluster.person(&["webhook", "check"]).await?;
    ensure!(
        checked.code == 1 && checked.stdout.contains("timeoutSeconds is 30"),
        "{}",
        checked.text()
    );

    let removed = cluster.person(&["webhook", "uninstall"]).await?;
    ensure!(
        removed.code == 0 && removed.stdout.contains("Removed 2 webhook configurations offhours."),
        "{}",
        removed.text()
    );
    let left = cluster
        .plane
        .kubectl(&[
            "get",
            "mutatingwebhookconfigurations,validatingwebhookconfigurations",
            "-o",
            "name",
        ])?
        .ok()
        .await?;
    ensure!(left.stdout.trim().is_empty(), "{}", left.stdout);
    let again = cluster.person(&["webhook", "uninstall"]).await?;
    ensure!(
        again.code == 0 && again.stdout.contains("No webhook configuration of ours"),
        "{}",
        again.text()
    );
    let checked = cluster.person(&["webhook", "check"]).await?;
    ensure!(checked.stdout.contains("nothing is held"), "{}", checked.text());
    Ok(())
}
