//! A deleted HPA, kept in a ConfigMap of the form that K8s-OffHours gave it. (Client not required.)

use std::sync::Arc;

use serde_json::Value;
use shared::annotations::{STATE_HPA, STATE_TYPE, TARGET_DEPLOYMENT, TARGET_HPA, TARGET_NAMESPACE};
use shared::hpa::Hpa;
use shared::prune::Keep;
use shared::workload::ObjectRef;

use super::{Autoscalers, hpa_ref};
use crate::decide::action::{Purpose, Request, Target};
use crate::decide::beside::{Move, Want};
use crate::states::{SIZE_LIMIT, config_map, config_map_ref, manifest, replaced, short_hash};

const PREFIX: &str = "offhours-hpa-state-";

/// What is read of a ConfigMap that keeps an HPA.
#[derive(Debug, Clone, PartialEq)]
pub struct Backup {
    /// The ConfigMap.
    pub object: ObjectRef,
    /// Its UID.
    pub uid: Arc<str>,
    /// Its resource version.
    pub resource_version: Arc<str>,
    /// What the HPA scales.
    pub target: ObjectRef,
    /// Name of the HPA.
    pub hpa_name: Arc<str>,
    /// The HPA. `Err`: what is wrong with the text.
    pub manifest: Result<Value, Arc<str>>,
}

/// The fields that have to be read of it.
pub fn backup_keep() -> Keep {
    let mut keep = Keep::nothing();
    for field in ["namespace", "name", "uid", "resourceVersion", "labels"] {
        keep.add(["metadata", field], Keep::All);
    }
    keep.add(["data"], Keep::All);
    keep
}

impl Backup {
    /// Reads it. `Err`: it is none, and why.
    pub fn read(object: &Value) -> Result<Self, String> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let needed = |pointer: &str| text(pointer).ok_or_else(|| format!("{pointer} is missing"));
        let data = |key: &str| text(&format!("/data/{key}"));
        if text("/metadata/labels/offhours.platform.io~1type") != Some(STATE_HPA) {
            return Err(format!("the label {STATE_TYPE}={STATE_HPA} is missing"));
        }
        let namespace = needed("/data/targetNamespace")?;
        let kept = data("hpa.json").ok_or_else(|| "data.hpa.json is missing".to_owned());
        let manifest = kept
            .and_then(|kept| serde_json::from_str::<Value>(kept).map_err(|error| error.to_string()))
            .and_then(|kept| {
                if kept.get("spec").is_some_and(Value::is_object) && kept.get("metadata").is_some_and(Value::is_object)
                {
                    Ok(kept)
                } else {
                    Err("it is no HPA: spec or metadata is missing".to_owned())
                }
            })
            .map_err(Arc::from);
        let reference = manifest
            .as_ref()
            .ok()
            .and_then(|kept: &Value| kept.pointer("/spec/scaleTargetRef").cloned());
        let of_reference = |field: &str| reference.as_ref()?.get(field)?.as_str().map(str::to_owned);
        let group = of_reference("apiVersion").map_or_else(
            || "apps".to_owned(),
            |version| version.rsplit_once('/').map_or("", |(group, _)| group).to_owned(),
        );
        Ok(Self {
            object: config_map_ref(needed("/metadata/namespace")?, needed("/metadata/name")?),
            uid: Arc::from(text("/metadata/uid").unwrap_or_default()),
            resource_version: Arc::from(text("/metadata/resourceVersion").unwrap_or_default()),
            target: ObjectRef {
                group: Arc::from(group),
                kind: Arc::from(of_reference("kind").unwrap_or_else(|| "Deployment".to_owned())),
                namespace: Arc::from(namespace),
                name: Arc::from(needed("/data/targetDeployment")?),
            },
            hpa_name: Arc::from(needed("/data/targetHpaName")?),
            manifest,
        })
    }

    /// `[min, max]` of the HPA.
    pub fn range(&self) -> Option<(u64, u64)> {
        let kept = self.manifest.as_ref().ok()?;
        let min = kept.pointer("/spec/minReplicas").and_then(Value::as_u64).unwrap_or(1);
        let max = kept.pointer("/spec/maxReplicas").and_then(Value::as_u64)?;
        Some((min, max.max(min)))
    }

    /// Whether this is what the HPA is now, so that nothing is lost when it is deleted.
    pub(super) fn holds(&self, hpa: &Hpa) -> bool {
        let now: Option<Value> = serde_json::from_str(&hpa.manifest).ok();
        self.manifest.as_ref().ok() == now.as_ref()
    }

    /// Whether the HPA is what was made of this backup, as far as its specification tells.
    pub(super) fn made(&self, hpa: &Hpa) -> bool {
        let now: Option<Value> = serde_json::from_str(&hpa.manifest).ok();
        let spec = |object: &Value| object.get("spec").cloned();
        self.manifest.as_ref().ok().and_then(spec) == now.as_ref().and_then(spec)
    }

    fn target(&self) -> Target {
        config_map(self.object.clone(), &self.uid)
    }

    /// Writes what the HPA is now.
    pub(super) fn renewed(&self, hpa: &Hpa, want: &Want) -> Move {
        let request = Request::Patch {
            body: replaced(&self.uid, &self.resource_version, &[("hpa.json", &hpa.manifest)]),
            subresource: None,
            dry_run: false,
        };
        Move::new(self.target(), &self.resource_version, request, Purpose::Backup, want)
    }

    /// It is not needed any more.
    pub(super) fn dropped(&self, want: &Want) -> Move {
        Move::new(
            self.target(),
            &self.resource_version,
            Request::Delete,
            Purpose::Backup,
            want,
        )
    }

    /// Creates the HPA. `Err`: why that is not possible.
    pub(super) fn restored(&self, want: &Want) -> Result<Move, String> {
        let unreadable = |why: &str| format!("the HPA in ConfigMap {} cannot be read: {why}", self.object);
        let mut kept = self.manifest.clone().map_err(|why| unreadable(&why))?;
        // Autoscaling v1 would turn the metrics into annotations.
        let version = kept.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        if version != "autoscaling/v2" {
            return Err(unreadable(&format!(
                "its apiVersion is {version:?}, not \"autoscaling/v2\""
            )));
        }
        if let Some(metadata) = kept.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), Value::from(&*self.target.namespace));
            metadata.insert("name".to_owned(), Value::from(&*self.hpa_name));
            for field in [
                "uid",
                "resourceVersion",
                "generation",
                "creationTimestamp",
                "managedFields",
                "selfLink",
            ] {
                metadata.remove(field);
            }
        }
        let kind = shared::hpa::kind();
        let target = Target {
            object: hpa_ref(&self.target.namespace, Arc::clone(&self.hpa_name)),
            version: Arc::from(kind.version.as_ref()),
            plural: Arc::from(kind.plural.as_ref()),
            uid: Arc::from(""),
        };
        Ok(Move::new(
            target,
            &Arc::from(""),
            Request::Create(kept),
            Purpose::Autoscaler,
            want,
        ))
    }
}

/// The backup of an HPA that has none yet. `Err`: it does not fit.
pub(super) fn create(all: &Autoscalers<'_>, hpa: &Hpa, want: &Want) -> Result<Move, String> {
    let ObjectRef {
        kind, namespace, name, ..
    } = all.target;
    if hpa.manifest.len() > SIZE_LIMIT {
        return Err(format!(
            "HPA {} is not deleted: its backup would not fit",
            hpa.object.name
        ));
    }
    // K8s-OffHours knows one HPA of one Deployment; what it does not know gets a name of its own.
    let known = **kind == *"Deployment"
        && all
            .hpas
            .first()
            .is_some_and(|first| first.object.name == hpa.object.name);
    let taken = |id: &str| all.backups.iter().any(|backup| *backup.object.name == *id);
    let short = format!("{PREFIX}{}", short_hash(&format!("{namespace}/{name}")));
    let id = if known && !taken(&short) {
        short
    } else {
        let all = format!("{namespace}/{kind}/{name}/{}", hpa.object.name);
        format!("{PREFIX}{}", short_hash(&all))
    };
    let object = config_map_ref(all.own_namespace, id);
    let labels = [
        ("app.kubernetes.io/name", "k8s-offhours"),
        (STATE_TYPE, STATE_HPA),
        (TARGET_NAMESPACE, namespace),
        (TARGET_DEPLOYMENT, name),
        (TARGET_HPA, &hpa.object.name),
    ];
    let data = [
        ("hpa.json", &*hpa.manifest),
        ("targetNamespace", namespace),
        ("targetDeployment", name),
        ("targetHpaName", &hpa.object.name),
    ];
    let body = manifest(&object, &labels, &data);
    Ok(Move::new(
        config_map(object, &Arc::from("")),
        &Arc::from(""),
        Request::Create(body),
        Purpose::Backup,
        want,
    ))
}
