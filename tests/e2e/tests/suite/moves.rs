//! The examples of other products' installations, moved inside a cluster: read, stopped as the answer says, applied. (kube-green's
//! is in `guides`, beside the product.)

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use harness::repository;
use serde_json::{Value, json};

use crate::product::{Cluster, Ended};

/// The objects of an example, with what the API server wants and a migration does not look at.
fn example(name: &str) -> anyhow::Result<(String, Vec<Value>)> {
    let path = repository().join("manifests/examples/migrate").join(name);
    let text = std::fs::read_to_string(&path)?;
    let mut objects = Vec::new();
    for document in text.split("\n---\n") {
        let mut object: Value = serde_saphyr::from_str(document).with_context(|| format!("no YAML: {document}"))?;
        let workload = matches!(object["kind"].as_str(), Some("Deployment" | "StatefulSet"));
        if workload && object["spec"]["selector"].is_null() {
            let labels = json!({"app": object["metadata"]["name"]});
            object["spec"]["selector"] = json!({"matchLabels": labels});
            object["spec"]["template"] =
                json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
        }
        objects.push(object);
    }
    Ok((path.display().to_string(), objects))
}

/// The namespaces of the objects, in which they are.
fn places(objects: &[Value]) -> BTreeSet<String> {
    let own = |object: &Value| match object["kind"].as_str() {
        Some("Namespace") => object["metadata"]["name"].as_str().map(str::to_owned),
        _ => object["metadata"]["namespace"].as_str().map(str::to_owned),
    };
    objects.iter().filter_map(own).collect()
}

/// What is in one answer and not in the other.
fn missing<'v>(field: &str, of: &'v Value, from: &Value) -> Vec<&'v Value> {
    let theirs = from[field].as_array().cloned().unwrap_or_default();
    of[field]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| !theirs.contains(one))
        .collect()
}

fn whole(ended: &Ended) -> anyhow::Result<Value> {
    // 3: with differences that are told.
    ensure!(matches!(ended.code, 0 | 3), "{}: {}", ended.code, ended.text());
    ended.json()
}

#[tokio::test]
async fn installations_of_other_products_move_inside_a_cluster_as_they_do_from_files() -> anyhow::Result<()> {
    let cluster = Cluster::start("moves").await?;
    cluster.install_crd().await?;
    for (product, file) in [
        ("py-kube-downscaler", "py-kube-downscaler.yaml"),
        ("gokubedownscaler", "gokubedownscaler.yaml"),
        ("k8s-offhours", "k8s-offhours.yaml"),
    ] {
        moves(&cluster, product, file)
            .await
            .with_context(|| product.to_owned())?;
    }
    Ok(())
}

async fn moves(cluster: &Cluster, product: &str, file: &str) -> anyhow::Result<()> {
    let plane = &cluster.plane;
    let (path, objects) = example(file)?;
    let places = places(&objects);
    for place in &places {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}});
        plane.apply(&namespace.to_string()).await?;
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    plane.apply(&list.to_string()).await?;

    let arguments = ["migrate", "--from", product, "-o", "json"];
    let read = whole(&cluster.person(&arguments).await?)?;
    let from_file = whole(&cluster.person(&[&arguments[..], &["-f", &path]].concat()).await?)?;
    for field in ["found", "schedules", "keys"] {
        let unread = missing(field, &from_file, &read);
        ensure!(
            unread.is_empty(),
            "not read from the cluster: {field}: {unread:#?} in {read:#}"
        );
    }
    ensure!(
        read["schedules"].as_array().is_some_and(|all| !all.is_empty()),
        "{read:#}"
    );
    let schedules = ["get", "offhoursschedules", "-o", "jsonpath={.items[*].metadata.name}"];
    ensure!(
        plane.kubectl(&schedules)?.ok().await?.stdout.is_empty(),
        "reading has written"
    );

    // Two products at once would fight; how to end the other one is said in commands that work.
    let apply = [&arguments[..], &["--apply"]].concat();
    let refused = cluster.person(&apply).await?;
    ensure!(
        refused.code == 1 && refused.stderr.contains("stop it first"),
        "{}: {}",
        refused.code,
        refused.text()
    );
    for line in read["stop"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('\'')).collect();
        let (first, rest) = words.split_first().context("an empty line")?;
        ensure!(*first == "kubectl", "{line}");
        plane.kubectl(rest)?.ok().await?;
    }
    let applied = whole(&cluster.person(&apply).await?)?;
    ensure!(
        applied["applied"]["failed"] == json!([]) && applied["applied"]["written"] != json!([]),
        "{applied:#}"
    );
    let names = plane.kubectl(&schedules)?.ok().await?.stdout;
    for schedule in read["schedules"].as_array().into_iter().flatten() {
        let name = schedule["metadata"]["name"]
            .as_str()
            .context("a schedule without name")?;
        ensure!(names.split(' ').any(|one| one == name), "{name} is not in {names}");
    }
    let again = whole(&cluster.person(&apply).await?)?;
    ensure!(again["applied"]["written"] == json!([]), "{again:#}");

    // Room for the next one.
    plane.kubectl(&["delete", "offhoursschedules", "--all"])?.ok().await?;
    plane
        .kubectl(&["label", "namespaces", "--all", "offhours.platform.io/schedule-"])?
        .ok()
        .await?;
    let mine: Vec<&str> = places
        .iter()
        .map(String::as_str)
        .filter(|place| *place != "offhours-system")
        .collect();
    plane.kubectl(&["delete", "namespaces"])?.args(&mine).ok().await?;
    plane
        .kubectl(&["delete", "deployments,cronjobs", "--all", "-n", "offhours-system"])?
        .ok()
        .await
        .map(drop)
}
