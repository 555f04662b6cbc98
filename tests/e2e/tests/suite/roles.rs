//! The product under the roles that the chart makes for it, in every suite: a call that they forbid fails the test.

use std::sync::OnceLock;

use anyhow::{Context as _, ensure};
use harness::{ControlPlane, Identity, PRODUCT_GROUP, Program, program, repository};
use serde_json::json;
use shared::kinds::table;

use crate::product::OWN_NAMESPACE;

/// As in the settings of the worlds of `faults`.
const ENGINES: &str = r#"{"group":"example.com","version":"v1","kind":"Engine","plural":"engines","knobs":[{"path":"/spec/minWorkers"}]}"#;

/// Somebody who may do what the product's account may, by a name of their own: so that the audit log tells tests apart.
pub fn product(name: &str) -> Identity {
    Identity::user(name, &[PRODUCT_GROUP])
}

/// What the chart renders for all that the product can do; `engines`: also for the kind of its own that a suite has.
fn rendered(engines: bool) -> anyhow::Result<String> {
    static TEXTS: [OnceLock<Result<String, String>>; 2] = [OnceLock::new(), OnceLock::new()];
    let text = TEXTS[usize::from(engines)].get_or_init(|| render(engines).map_err(|error| format!("{error:#}")));
    text.clone().map_err(|error| anyhow::anyhow!("the chart: {error}"))
}

fn render(engines: bool) -> anyhow::Result<String> {
    let kinds: Vec<String> = table().iter().map(|kind| kind.kind.to_string()).collect();
    let output = Program::new(program("helm")?)
        .args(["template", "offhours"])
        .arg(repository().join("manifests/chart").display().to_string())
        .args([
            "-n",
            OWN_NAMESPACE,
            "--kube-version",
            "1.36.0",
            "--set",
            "hpa.delete=true",
        ])
        .arg("--set")
        .arg(format!("kinds={{{}}}", kinds.join(",")))
        .arg("--set-json")
        .arg(format!("addedKinds=[{}]", if engines { ENGINES } else { "" }))
        .run("")?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// The documents of these kinds.
pub fn documents(kinds: &[&str]) -> anyhow::Result<String> {
    chosen(kinds, &rendered(false)?)
}

fn chosen(kinds: &[&str], text: &str) -> anyhow::Result<String> {
    let wanted: Vec<&str> = text
        .split("\n---\n")
        .filter(|document| {
            let kind = document.lines().find_map(|line| line.strip_prefix("kind: "));
            kind.is_some_and(|kind| kinds.contains(&kind))
        })
        .collect();
    ensure!(wanted.len() >= kinds.len(), "{kinds:?} in {text}");
    Ok(wanted.join("\n---\n"))
}

/// Makes accounts and roles of the chart, for the accounts themselves and for whoever is a [`product`]. The product's namespace
/// has to be there.
pub async fn grant(plane: &ControlPlane) -> anyhow::Result<()> {
    let roles = [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    ];
    plane
        .apply(&documents(&roles)?)
        .await
        .context("failed to make the roles")?;
    for (kind, namespace) in [("ClusterRole", None), ("Role", Some(OWN_NAMESPACE))] {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
            "metadata": {"name": PRODUCT_GROUP, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "offhours"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": PRODUCT_GROUP}],
        });
        plane.apply(&binding.to_string()).await?;
    }
    Ok(())
}
