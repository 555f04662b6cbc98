//! The product under the roles that the chart makes for it, in every suite: a call that they forbid fails the test.

use std::sync::OnceLock;

use anyhow::Context as _;
use harness::{ControlPlane, Identity, PRODUCT_GROUP, chart};
use serde_json::json;
use shared::kinds::table;

use crate::product::OWN_NAMESPACE;

/// Somebody who may do what the product's account may, by a name of their own: so that the audit log tells tests apart.
pub fn product(name: &str) -> Identity {
    Identity::user(name, &[PRODUCT_GROUP])
}

/// What the chart renders for all that the product can do.
fn rendered() -> anyhow::Result<String> {
    static TEXT: OnceLock<Result<String, String>> = OnceLock::new();
    let text = TEXT.get_or_init(|| render().map_err(|error| format!("{error:#}")));
    text.clone().map_err(|error| anyhow::anyhow!("the chart: {error}"))
}

fn render() -> anyhow::Result<String> {
    let kinds: Vec<String> = table().iter().map(|kind| kind.kind.to_string()).collect();
    let kinds = format!("hpa.delete=true,kinds={{{}}}", kinds.join(","));
    chart::template(OWN_NAMESPACE, &["--set", &kinds])
}

/// The documents of these kinds.
pub fn documents(kinds: &[&str]) -> anyhow::Result<String> {
    chart::only(&rendered()?, kinds)
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
