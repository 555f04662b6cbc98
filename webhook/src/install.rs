//! Our webhook configurations in the cluster: for the demo, for dev mode and for going away. (In production the chart creates
//! them, and only their `caBundle` is written at run time.) Client required.

use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::kinds::Kinds;
use shared::rules::{InvalidRegistration, Registration};
use thiserror::Error;

/// Label of the configurations of dev mode: whose machine they point to.
pub const DEV_LABEL: &str = "offhours.platform.io/dev";

/// Tries before a configuration that somebody else changes all the time is given up.
const TRIES: usize = 5;

/// Why the configurations could not be installed or removed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// The registration itself is wrong.
    #[error(transparent)]
    ValidateRegistration(#[from] InvalidRegistration),
    /// The API server refused or did not answer.
    #[error("failed to {verb} {kind} {name:?}: {source}")]
    CallConfiguration {
        /// What was tried.
        verb: &'static str,
        /// Kind.
        kind: String,
        /// Name.
        name: String,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// Somebody else changes it all the time.
    #[error("failed to update {kind} {name:?}: somebody else changed it at every try")]
    LoseRace {
        /// Kind.
        kind: String,
        /// Name.
        name: String,
    },
}

/// One of the two kinds of configuration.
trait Configuration:
    Resource<DynamicType = ()> + Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    fn clients(&mut self) -> Vec<(&str, &mut WebhookClientConfig)>;
    /// Takes over what this product decides, and leaves the rest (owners, finalizers, other people's labels).
    fn take(&mut self, wanted: &Self);
}

macro_rules! configuration {
    ($kind:ty) => {
        impl Configuration for $kind {
            fn clients(&mut self) -> Vec<(&str, &mut WebhookClientConfig)> {
                self.webhooks
                    .iter_mut()
                    .flatten()
                    .map(|webhook| (webhook.name.as_str(), &mut webhook.client_config))
                    .collect()
            }

            fn take(&mut self, wanted: &Self) {
                self.webhooks.clone_from(&wanted.webhooks);
                let labels = wanted.metadata.labels.clone().unwrap_or_default();
                self.metadata.labels.get_or_insert_default().extend(labels);
            }
        }
    };
}

configuration!(MutatingWebhookConfiguration);
configuration!(ValidatingWebhookConfiguration);

fn failed<K: Resource<DynamicType = ()>>(verb: &'static str, name: &str) -> impl FnOnce(kube::Error) -> InstallError {
    let name = name.to_owned();
    move |source| InstallError::CallConfiguration {
        verb,
        kind: K::kind(&()).into_owned(),
        name,
        source: Box::new(source),
    }
}

/// Creates both configurations, or makes them what they should be. A bundle that is there already stays, unless the
/// registration brings one.
pub async fn install(client: &Client, registration: &Registration, kinds: &Kinds) -> Result<(), InstallError> {
    install_labelled(client, registration, kinds, None).await
}

async fn install_labelled(
    client: &Client,
    registration: &Registration,
    kinds: &Kinds,
    dev: Option<&str>,
) -> Result<(), InstallError> {
    let mut mutating = registration.mutating(kinds)?;
    let mut validating = registration.validating(kinds)?;
    if let Some(owner) = dev {
        for labels in [&mut mutating.metadata.labels, &mut validating.metadata.labels] {
            labels
                .get_or_insert_default()
                .insert(DEV_LABEL.to_owned(), owner.to_owned());
        }
    }
    put(client, &mutating).await?;
    put(client, &validating).await
}

async fn put<K: Configuration>(client: &Client, wanted: &K) -> Result<(), InstallError> {
    let api: Api<K> = Api::all(client.clone());
    let name = wanted.name_any();
    for _ in 0..TRIES {
        let present = api.get_opt(&name).await.map_err(failed::<K>("get", &name))?;
        let result = match present {
            None => api.create(&PostParams::default(), wanted).await,
            Some(mut present) => {
                let next = merged(&mut present, wanted);
                if next == present {
                    return Ok(());
                }
                api.replace(&name, &PostParams::default(), &next).await
            }
        };
        match result {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed::<K>("write", &name)(error)),
        }
    }
    Err(InstallError::LoseRace {
        kind: K::kind(&()).into_owned(),
        name,
    })
}

/// What a configuration is to be, given what it is.
fn merged<K: Configuration>(present: &mut K, wanted: &K) -> K {
    let mut wanted = wanted.clone();
    let bundles: Vec<(String, Option<k8s_openapi::ByteString>)> = present
        .clients()
        .into_iter()
        .map(|(name, client)| (name.to_owned(), client.ca_bundle.clone()))
        .collect();
    let any = bundles.iter().find_map(|(_, bundle)| bundle.clone());
    for (name, client) in wanted.clients() {
        if client.ca_bundle.is_none() {
            let own = bundles.iter().find(|(present, _)| present == name);
            client.ca_bundle = own.and_then(|(_, bundle)| bundle.clone()).or_else(|| any.clone());
        }
    }
    let mut next = present.clone();
    next.take(&wanted);
    next
}

/// Removes both configurations, first of all when the product goes away. `Ok(n)`: so many were there.
pub async fn uninstall(client: &Client, name: &str) -> Result<usize, InstallError> {
    let mutating = remove::<MutatingWebhookConfiguration>(client, name).await?;
    let validating = remove::<ValidatingWebhookConfiguration>(client, name).await?;
    Ok(usize::from(mutating) + usize::from(validating))
}

async fn remove<K: Configuration>(client: &Client, name: &str) -> Result<bool, InstallError> {
    let api: Api<K> = Api::all(client.clone());
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(failed::<K>("delete", name)(error)),
    }
}

/// Names of the configurations of dev mode that are there, whosever.
pub async fn of_dev_mode(client: &Client) -> Result<Vec<String>, InstallError> {
    let mut names = names_of_dev_mode::<MutatingWebhookConfiguration>(client).await?;
    names.extend(names_of_dev_mode::<ValidatingWebhookConfiguration>(client).await?);
    names.sort();
    names.dedup();
    Ok(names)
}

async fn names_of_dev_mode<K: Configuration>(client: &Client) -> Result<Vec<String>, InstallError> {
    let api: Api<K> = Api::all(client.clone());
    let of_dev = ListParams::default().labels(DEV_LABEL);
    let found = api.list(&of_dev).await.map_err(failed::<K>("list", "of dev mode"))?;
    Ok(found.items.iter().map(ResourceExt::name_any).collect())
}

/// The name of the configurations of dev mode on this machine.
pub fn dev_name(machine: &str) -> String {
    format!("offhours-dev-{}", dev_owner(machine))
}

fn dev_owner(machine: &str) -> String {
    let mut owner: String = machine
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    owner.truncate(40);
    let owner = owner.trim_matches('-');
    if owner.is_empty() {
        "machine".to_owned()
    } else {
        owner.to_owned()
    }
}

/// Registers a webhook that runs on this machine, under a name of its own. What an earlier run on it left behind (it may have
/// been killed) is taken over, and removed where it is named otherwise.
pub async fn install_dev(
    client: &Client,
    registration: &Registration,
    kinds: &Kinds,
    machine: &str,
) -> Result<String, InstallError> {
    let registration = Registration {
        name: dev_name(machine),
        ..registration.clone()
    };
    let owner = dev_owner(machine);
    remove_stale::<MutatingWebhookConfiguration>(client, &owner, &registration.name).await?;
    remove_stale::<ValidatingWebhookConfiguration>(client, &owner, &registration.name).await?;
    install_labelled(client, &registration, kinds, Some(&owner)).await?;
    Ok(registration.name)
}

async fn remove_stale<K: Configuration>(client: &Client, owner: &str, keep: &str) -> Result<(), InstallError> {
    let api: Api<K> = Api::all(client.clone());
    let of_ours = ListParams::default().labels(&format!("{DEV_LABEL}={owner}"));
    let found = api.list(&of_ours).await.map_err(failed::<K>("list", keep))?;
    for stale in found.items.iter().filter(|stale| stale.name_any() != keep) {
        let exactly = DeleteParams::default().preconditions(Preconditions {
            uid: stale.uid(),
            resource_version: None,
        });
        match api.delete(&stale.name_any(), &exactly).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(failed::<K>("delete", &stale.name_any())(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use shared::rules::FailurePolicy;

    use super::*;

    #[test]
    fn case_5_26_an_update_keeps_the_bundle_that_is_there_and_gives_it_to_new_entries() {
        let registration = Registration::in_cluster("offhours-system", "offhours-webhook", "offhours");
        let kinds = Kinds::default();
        let wanted = registration.mutating(&kinds).unwrap();
        let mut present = wanted.clone();
        let bundle = Some(k8s_openapi::ByteString(b"PEM".to_vec()));
        for (_, client) in present.clients() {
            client.ca_bundle.clone_from(&bundle);
        }
        present.webhooks.as_mut().unwrap().pop();
        present.metadata.owner_references = Some(Vec::new());
        let mut next = merged(&mut present, &wanted);
        assert_eq!(next.clients().len(), wanted.clone().clients().len());
        assert!(next.clients().iter().all(|(_, client)| client.ca_bundle == bundle));
        assert_eq!(next.metadata.owner_references, Some(Vec::new()));
        let again = merged(&mut next.clone(), &wanted);
        assert_eq!(again, next, "nothing to write the second time");
        let changed = Registration {
            failure_policy: FailurePolicy::Fail,
            ..registration
        };
        assert_ne!(merged(&mut next.clone(), &changed.mutating(&kinds).unwrap()), next);
    }

    #[test]
    fn dev_names_are_names() {
        assert_eq!(dev_name("Ana's laptop.local"), "offhours-dev-ana-s-laptop-local");
        assert_eq!(dev_name("???"), "offhours-dev-machine");
    }
}
