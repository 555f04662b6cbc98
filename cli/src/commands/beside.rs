//! What stands beside workloads (HPAs, Applications, Flux objects), for every command that decides.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use cluster::follow::Follower;
use cluster::store::Store;
use cluster::view::View;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use scheduler::argo::{Application, ArgoApi};
use scheduler::beside::{Beside, Following};
use scheduler::decide::snapshot::Snapshot;
use shared::annotations::{ARGO_APPLICATIONS, ARGO_APPLICATIONS_ALIAS, SCHEDULE};
use shared::settings::Settings;
use shared::workload::Keys;
use tokio::task::JoinHandle;

/// How often Applications that we paused are looked at while their workloads wait.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Follows it.
pub fn follow(follower: &Follower, settings: &Settings, own_namespace: &str) -> Beside {
    let following = match (settings.cluster.namespaces.is_empty(), settings.one_shot.is_some()) {
        (_, true) if settings.argo.enabled && settings.argo.api.is_some() => Following::ArgoByApi,
        (true, _) => Following::Everything,
        (false, _) => Following::OwnNamespace,
    };
    Beside::follow(follower, own_namespace, following)
}

/// Takes what the settings say of it into the snapshot.
pub fn configure(settings: &Settings, snapshot: &mut Snapshot) {
    let applications = &mut snapshot.beside.applications;
    applications.discovery = settings.argo.discovery;
    applications.cluster_names = settings
        .argo
        .cluster_names
        .iter()
        .map(|name| Arc::from(name.as_str()))
        .collect();
}

/// Argo CD's HTTP API, for as long as this lives.
pub struct Feed {
    /// Whoever writes Applications needs it.
    pub api: ArgoApi,
    task: JoinHandle<()>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The certificates of a PEM file, as DER.
fn authorities(path: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let told = || format!("failed to read authorities from {path} (--argo-ca-file, ARGO_CA_FILE)");
    let text = std::fs::read(path).with_context(told)?;
    let found: Result<Vec<Vec<u8>>, _> = CertificateDer::pem_slice_iter(&text)
        .map(|one| one.map(|certificate| certificate.as_ref().to_vec()))
        .collect();
    let found = found.with_context(told)?;
    anyhow::ensure!(
        !found.is_empty(),
        "{}: there is no certificate in it; it has to be PEM",
        told()
    );
    Ok(found)
}

/// Reads the Applications of a schedule's namespaces by the HTTP API, and goes on looking at those that we pause.
///
/// Where they cannot be read, nothing that Argo CD would undo is put to sleep; the snapshot says so.
///
/// # Errors
/// If the settings make no client.
pub async fn argo_by_api(
    settings: &Settings,
    schedule: &str,
    view: &View,
    store: Option<Arc<Store<Application>>>,
    snapshot: &mut Snapshot,
) -> anyhow::Result<Option<Feed>> {
    let (Some(wanted), Some(store)) = (settings.argo.api.as_ref().filter(|_| settings.argo.enabled), store) else {
        return Ok(None);
    };
    let authority = wanted.authority_file.as_deref().map(authorities).transpose()?;
    let api = ArgoApi::new(wanted, authority)?;
    let follows = |labels: Option<&Keys>| {
        labels
            .and_then(|labels| labels.get(SCHEDULE))
            .is_some_and(|it| **it == *schedule)
    };
    let stores = view.workload_stores();
    let workloads = stores.iter().flat_map(|(_, store)| store.all());
    let mut places: BTreeSet<Arc<str>> = workloads
        .filter(|workload| follows(workload.labels.as_ref()))
        .map(|workload| Arc::clone(&workload.namespace))
        .collect();
    let mut names = BTreeSet::new();
    for namespace in view.namespaces().all() {
        if follows(namespace.labels.as_ref()) {
            places.insert(Arc::clone(&namespace.name));
        }
        let lists = [&namespace.labels, &namespace.annotations].into_iter().flatten();
        let lists = lists.flat_map(|keys| [keys.get(ARGO_APPLICATIONS), keys.get(ARGO_APPLICATIONS_ALIAS)]);
        let entries = lists.flatten().flat_map(|list| list.split(','));
        names.extend(entries.map(|entry| entry.trim().rsplit('/').next().unwrap_or_default().to_owned()));
    }
    match api.fill(&store, &places, &names).await {
        Ok(count) => {
            tracing::info!("Argo CD: {count} Applications concern schedule {schedule}");
            snapshot.beside.argo_sight = Ok(());
        }
        Err(error) => {
            tracing::error!("Argo CD: {error}");
            snapshot.beside.argo_sight = Err(Arc::from(error.to_string()));
        }
    }
    let (asker, known) = (api.clone(), store);
    let task = tokio::spawn(async move {
        let mut again = tokio::time::interval(LOOK_AGAIN);
        loop {
            again.tick().await;
            if let Err(error) = asker.refresh(&known).await {
                tracing::warn!("Argo CD: {error}");
            }
        }
    });
    Ok(Some(Feed { api, task }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_authorities_that_is_none_is_named_with_its_setting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let shown = path.display().to_string();
        let error = |text: anyhow::Error| format!("{text:#}");
        assert!(error(authorities(&shown).unwrap_err()).contains(&shown));
        std::fs::write(&path, "nothing").unwrap();
        assert!(error(authorities(&shown).unwrap_err()).contains("ARGO_CA_FILE"));
        // What is in a PEM block is for TLS to judge.
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n").unwrap();
        assert_eq!(authorities(&shown).unwrap(), [vec![1, 2, 3]]);
    }
}
