//! The webhook: certificates, registration, TLS server.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use certs::manager::Manager;
use certs::settings::{Configurations, Lives, Names, Settings as CertificateSettings, Source};
use certs::status::Certificates;
use cluster::events::{EventSettings, EventTask, Events};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use prometheus_client::registry::Registry;
use serde_json::json;
use shared::rules::{Place, Registration};
use shared::settings::{OnUncertainty, Settings};
use shared::workload::FIELD_MANAGER;
use webhook::aside::Aside;
use webhook::authorize::Authorizer;
use webhook::eyes::Eyes;
use webhook::handlers::{self, App};
use webhook::reach::Reaching;
use webhook::state::{Policy, Sight};
use webhook::{aside, authorize, reach, remember, report, server};

use super::ears::Ears;
use super::{Shared, dev};
use crate::ops::metrics::{Sample, Scrape};
use crate::ops::table;
use crate::process::Tasks;

/// How often files of somebody else's certificate are compared.
const POLL: Duration = Duration::from_secs(10);
/// The longest that one call about certificates may take.
const CALL: Duration = Duration::from_secs(10);

/// Takes the webhook's address.
///
/// # Errors
/// If it cannot be had, or there is none.
pub fn listen(settings: &Settings) -> anyhow::Result<TcpListener> {
    let address = settings.webhook.address.context(
        "the webhook has no address; write one in --webhook-address or OFFHOURS_WEBHOOK_ADDRESS, or run `offhours scheduler` alone",
    )?;
    let listener = server::listen(address)
        .context("the webhook's address is chosen by --webhook-address or OFFHOURS_WEBHOOK_ADDRESS")?;
    listener
        .set_nonblocking(true)
        .context("failed to set up the webhook's listener")?;
    Ok(listener)
}

/// Starts it.
///
/// # Errors
/// If it cannot be set up.
pub async fn start(
    shared: &Shared,
    listener: TcpListener,
    tasks: &mut Tasks,
    registry: &mut Registry,
) -> anyhow::Result<()> {
    let settings = &shared.settings.webhook;
    let own_users = own_users(shared).await?;
    tracing::info!(users = own_users.join(","), "our own accounts are let pass");
    let port = listener
        .local_addr()
        .context("the webhook's listener has no address")?
        .port();
    let client_authority = settings.client_authority.as_deref().map(Path::new);
    let (resolver, aside) = if settings.dev {
        let resolver = dev::start(shared, &own_users, port, tasks).await?;
        // Nobody to stand aside for: the Lease is ours.
        (resolver, Aside::default())
    } else {
        if settings.install {
            install(shared, &own_users, port).await?;
        }
        let (manager, certificates) = keep_certificates(shared, registry)?;
        let stopped = shared.stop.wanted();
        tasks.spawn("certificates", async move {
            manager.run(stopped).await;
            Ok(())
        });
        (certificates.resolver(), make_room(shared, tasks))
    };
    let tls = Arc::new(server::tls_config(resolver, client_authority)?);
    test_itself(shared, registry, tasks);
    let (mut app, event_task) = app(shared, own_users, registry, tasks);
    app.aside = aside;
    let router = handlers::router(Arc::new(app));
    let drain = shared.settings.drain_timeout;
    let options = server::Options {
        settle: (drain / 4).min(server::Options::default().settle),
        deadline: drain / 2,
        ..server::Options::default()
    };
    let stopped = shared.stop.wanted();
    tasks.spawn("webhook", async move {
        server::serve(listener, tls, router, stopped, options).await?;
        drop(event_task);
        Ok(())
    });
    Ok(())
}

/// Stands aside for a webhook in dev mode.
fn make_room(shared: &Shared, tasks: &mut Tasks) -> Aside {
    let aside = Aside::default();
    let (client, namespace) = (shared.clients.watches.clone(), shared.own_namespace.clone());
    let (clock, seen, stopped) = (Arc::clone(&shared.clock), aside.clone(), shared.stop.wanted());
    tasks.spawn("lease of dev mode", async move {
        tokio::select! {
            () = aside::follow(client, &namespace, clock, seen) => {}
            () = stopped => {}
        }
        Ok(())
    });
    aside
}

/// Finds out again and again whether the API server reaches it.
fn test_itself(shared: &Shared, registry: &mut Registry, tasks: &mut Tasks) {
    let (seen, client) = (Reaching::default(), shared.clients.calls.clone());
    let (shown, stopped) = (seen.clone(), shared.stop.wanted());
    registry.register_collector(Box::new(Scrape(move || {
        let reached = shown
            .reached()
            .map(|reached| vec![(Vec::new(), f64::from(u8::from(reached)))]);
        vec![Sample::of(&table::REACHED, reached.unwrap_or_default())]
    })));
    tasks.spawn("self-test", async move {
        tokio::select! {
            () = reach::follow(|| reach::probe(client.clone()), seen) => {}
            () = stopped => {}
        }
        Ok(())
    });
}

/// The certificates, with their gate and metrics; whoever gets the manager runs it.
fn keep_certificates(shared: &Shared, registry: &mut Registry) -> anyhow::Result<(Manager, Certificates)> {
    let settings = &shared.settings.webhook;
    let client = shared.clients.calls.clone();
    let source = match &settings.certificate_directory {
        None => Source::SelfSigned {
            secret: settings.certificate_secret.clone(),
        },
        Some(directory) => {
            let directory = PathBuf::from(directory);
            let authority = directory.join("ca.crt");
            Source::Files {
                certificate: directory.join("tls.crt"),
                key: directory.join("tls.key"),
                authority: authority.exists().then_some(authority),
                poll: POLL,
            }
        }
    };
    let (manager, certificates) = Manager::new(
        CertificateSettings {
            source,
            namespace: shared.own_namespace.clone(),
            names: Names::of_service(&settings.service, &shared.own_namespace),
            configurations: Configurations {
                mutating: Some(settings.configuration.clone()),
                validating: Some(settings.configuration.clone()),
            },
            lives: Lives::default(),
            identity: shared.identity.clone(),
            call_timeout: CALL,
        },
        Some(&client),
        Arc::clone(&shared.clock),
        None,
    )?;
    let seen = certificates.clone();
    shared.gates.add(
        "certificate",
        move || {
            if seen.ready() { Ok(()) } else { Err(seen.reason()) }
        },
    );
    let seen = certificates.clone();
    registry.register_collector(Box::new(Scrape(move || {
        let one = |value: Option<i64>| value.map(|value| vec![(Vec::new(), value as f64)]).unwrap_or_default();
        vec![
            Sample::of(&table::CERTIFICATE_EXPIRY, one(seen.seconds_to_expiry())),
            Sample::of(&table::AUTHORITY_EXPIRY, one(seen.authority_seconds_to_expiry())),
            Sample::one(&table::HANDSHAKES_REFUSED, seen.refused_handshakes() as f64),
        ]
    })));
    Ok((manager, certificates))
}

/// What all requests share.
fn app(shared: &Shared, own_users: Vec<String>, registry: &mut Registry, tasks: &mut Tasks) -> (App, EventTask) {
    let client = shared.clients.calls.clone();
    let settings = &shared.settings.webhook;
    let (events, event_task) = Events::start(
        client.clone(),
        Arc::clone(&shared.clock),
        EventSettings::new("offhours.platform.io/webhook", shared.identity.clone()),
    );
    let schedules = Arc::clone(&shared.schedules);
    let eyes: Arc<dyn Sight> = Arc::new(Eyes::new(Arc::clone(&shared.view), move || {
        Arc::clone(&schedules.current().schedules)
    }));
    let policy = Policy {
        own_users,
        own_namespace: shared.own_namespace.clone(),
        on_uncertainty: match settings.on_uncertainty {
            OnUncertainty::Allow => webhook::state::OnUncertainty::Allow,
            OnUncertainty::Deny => webhook::state::OnUncertainty::Deny,
        },
        ..Policy::default()
    };
    let mut app = App::new(eyes, policy, Arc::clone(&shared.clock));
    app.authorizer = Some(Authorizer::new(authorize::ApiServer(client.clone())));
    app.parents = Some(Arc::new(remember::ApiServer(client)));
    let (reports, work) = report::reports(shared.clients.calls.clone(), Arc::clone(&shared.clock));
    let stopped = shared.stop.wanted();
    tasks.spawn("reports", async move {
        tokio::select! {
            () = work => {}
            () = stopped => {}
        }
        Ok(())
    });
    app.listener = Arc::new(Ears::new(events, reports, shared.settings.kinds.clone(), registry));
    (app, event_task)
}

/// User names of our own accounts: those of the settings, and the one that this process runs under.
async fn own_users(shared: &Shared) -> anyhow::Result<Vec<String>> {
    let mut users = shared.settings.own_identities.clone();
    if shared.settings.webhook.dev {
        // Whoever serves from a laptop is a person, who is held like everybody else.
        if users.is_empty() {
            users.push(format!("system:serviceaccount:{}:offhours", shared.own_namespace));
        }
        return Ok(users);
    }
    let reviews: Api<SelfSubjectReview> = Api::all(shared.clients.calls.clone());
    let who = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .map_err(|error| {
            anyhow::anyhow!(
                "failed to ask the API server who we are: {error}; check that it can be reached and that the kubeconfig or \
                 service account is valid, or name our accounts in --own-identities"
            )
        });
    match who {
        Ok(review) => {
            let own = review
                .status
                .and_then(|status| status.user_info)
                .and_then(|user| user.username);
            if let Some(own) = own
                && !users.contains(&own)
            {
                users.push(own);
            }
        }
        Err(error) if users.is_empty() => return Err(error),
        Err(error) => tracing::warn!("{error:#}"),
    }
    Ok(users)
}

/// Creates or renews the registration, for a product that no chart installs.
async fn install(shared: &Shared, own_users: &[String], port: u16) -> anyhow::Result<()> {
    let settings = &shared.settings.webhook;
    let client = shared.clients.calls.clone();
    let beside = settings.install_service;
    if beside {
        // The API server and this process are on one machine, so the Service only has to lead back to it.
        let services: Api<Service> = Api::namespaced(client.clone(), &shared.own_namespace);
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": settings.service},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"name": "https", "port": port}]},
        });
        apply(&services, &settings.service, &service).await.with_context(|| {
            format!(
                "failed to install Service {}/{}",
                shared.own_namespace, settings.service
            )
        })?;
    }
    let mut registration = Registration::in_cluster(&shared.own_namespace, &settings.service, "offhours");
    registration.name.clone_from(&settings.configuration);
    registration.own_users = own_users.to_vec();
    if beside {
        registration.place = Place::Service {
            namespace: shared.own_namespace.clone(),
            name: settings.service.clone(),
            port,
        };
    }
    webhook::install::install(&client, &registration, &shared.settings.kinds).await?;
    tracing::info!(configuration = settings.configuration, "the webhook is registered");
    Ok(())
}

/// Server-side apply: what others wrote, such as the CA bundle, stays.
async fn apply<K>(api: &Api<K>, name: &str, value: &serde_json::Value) -> Result<(), kube::Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let parameters = PatchParams {
        force: true,
        ..PatchParams::apply(FIELD_MANAGER)
    };
    api.patch(name, &parameters, &Patch::Apply(value)).await.map(drop)
}
