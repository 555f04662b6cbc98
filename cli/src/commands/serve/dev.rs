//! `offhours webhook --dev`: serves a cluster from this machine, and leaves nothing behind.
//!
//! Its Lease makes the webhook in the cluster stand aside, its configurations bear a name of their own and point here by URL,
//! its authority lives in memory. At the end the configurations go first; what a killed run left is removed by the next one.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use certs::issuer::Authority;
use certs::resolver::{Resolver, Served};
use certs::settings::{Lives, Names};
use scheduler::lease::{LeaseRunner, LeaseSettings, lease_client};
use shared::rules::{Place, Registration};
use webhook::aside::DEV_LEASE;
use webhook::install;

use super::Shared;
use crate::process::Tasks;

/// How long a webhook in dev mode waits for another one to go.
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes the Lease, registers this machine, and gives what serves its certificate. Both go away when the stop is said.
///
/// # Errors
/// If another machine is being served from, this one cannot be found, or the cluster refuses.
pub async fn start(
    shared: &Shared,
    own_users: &[String],
    port: u16,
    tasks: &mut Tasks,
) -> anyhow::Result<Arc<Resolver>> {
    let settings = &shared.settings.webhook;
    let host = match &settings.dev_host {
        Some(host) => host.clone(),
        None => own_address(shared)?.to_string(),
    };
    let authority = Authority::generate(shared.clock.now(), &Lives::default())
        .context("failed to make an authority of dev mode")?;
    let names = Names::default().with_extra([&host]);
    let leaf = authority
        .issue(&names, shared.clock.now(), &Lives::default(), None)
        .with_context(|| format!("failed to make a certificate for {host:?} (--dev-host)"))?;
    let resolver = Arc::new(Resolver::new(Arc::clone(&shared.clock)));
    resolver.serve(Served::new(vec![leaf.certificate], leaf.key, vec![leaf.signer])?);

    lead(shared, tasks).await?;

    let place = match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
        _ => format!("https://{host}:{port}"),
    };
    let mut registration = Registration::in_cluster(&shared.own_namespace, &settings.service, "offhours");
    registration.place = Place::Url(place.clone());
    registration.own_users = own_users.to_vec();
    registration.ca_bundle = authority.certificate().pem().into_bytes();
    let client = shared.clients.calls.clone();
    let name = install::install_dev(&client, &registration, &shared.settings.kinds, &machine()).await?;
    tracing::info!(
        configuration = name,
        at = place,
        "this machine serves the cluster's webhook; Ctrl-C ends it and cleans up"
    );
    let stopped = shared.stop.wanted();
    tasks.spawn("registration of dev mode", async move {
        stopped.await;
        install::uninstall(&client, &name).await?;
        tracing::info!(configuration = name, "the configurations of dev mode are removed");
        Ok(())
    });
    Ok(resolver)
}

/// Takes the Lease for which the webhook in the cluster stands aside.
async fn lead(shared: &Shared, tasks: &mut Tasks) -> anyhow::Result<()> {
    let wanted = &shared.settings.scheduler;
    let lease = LeaseSettings {
        lease_duration: wanted.lease_duration,
        renew_deadline: wanted.lease_renew_deadline,
        retry_period: wanted.lease_retry_period,
        call_timeout: wanted.lease_call_timeout,
        ..LeaseSettings::new(&shared.own_namespace, DEV_LEASE, shared.identity.clone())
    };
    let client = lease_client(shared.clients.config().clone(), lease.call_timeout)
        .context("failed to make a client for the lease")?;
    let (runner, leadership) = LeaseRunner::new(client, lease, Arc::clone(&shared.clock));
    let stopped = shared.stop.wanted();
    tasks.spawn("lease of dev mode", async move {
        runner.run(stopped).await;
        Ok(())
    });
    let patience = PATIENCE.max(wanted.lease_duration * 2);
    tokio::time::timeout(patience, leadership.leads()).await.map_err(|_| {
        anyhow::anyhow!(
            "the Lease {}/{DEV_LEASE} could not be taken within {patience:?}: another machine serves this cluster in dev mode \
             (`kubectl get lease -n {} {DEV_LEASE}` says which), or this account may not get, create and update it",
            shared.own_namespace,
            shared.own_namespace
        )
    })?;
    Ok(())
}

/// What this machine is called.
fn machine() -> String {
    std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "machine".to_owned())
}

/// The address by which this machine reaches the API server, and so, mostly, the one by which it is reached.
fn own_address(shared: &Shared) -> anyhow::Result<IpAddr> {
    let url = &shared.clients.config().cluster_url;
    let look = || -> std::io::Result<IpAddr> {
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let any = if host.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any)?;
        // Nothing is sent: the system only chooses a way.
        socket.connect((host.as_str(), url.port_u16().unwrap_or(443)))?;
        Ok(socket.local_addr()?.ip())
    };
    look().with_context(|| {
        format!("failed to find the address by which this machine reaches {url}; write it in --dev-host or OFFHOURS_DEV_HOST")
    })
}
