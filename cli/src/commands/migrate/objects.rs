//! The objects that a migration is read from, and what is asked of them.

use std::collections::BTreeMap;

use serde_json::Value;

/// Everything that was read: from files, or from the cluster.
#[derive(Debug, Default)]
pub struct Objects(pub Vec<Value>);

/// One object.
#[derive(Debug, Clone, Copy)]
pub struct Object<'o>(pub &'o Value);

impl<'o> Object<'o> {
    fn text(self, pointer: &str) -> &'o str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Its kind.
    pub fn kind(self) -> &'o str {
        self.text("/kind")
    }

    /// Its API group, `""` for the core.
    pub fn group(self) -> &'o str {
        self.text("/apiVersion").split_once('/').map_or("", |(group, _)| group)
    }

    /// Its name.
    pub fn name(self) -> &'o str {
        self.text("/metadata/name")
    }

    /// Its namespace; what is written without one is in `default`.
    pub fn namespace(self) -> &'o str {
        match self.text("/metadata/namespace") {
            "" => "default",
            namespace => namespace,
        }
    }

    /// An annotation that is not empty.
    pub fn annotation(self, key: &str) -> Option<&'o str> {
        let value = self.0.pointer("/metadata/annotations")?.get(key)?.as_str()?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// A label.
    pub fn label(self, key: &str) -> Option<&'o str> {
        self.0.pointer("/metadata/labels")?.get(key)?.as_str()
    }

    /// Whether it has all of these labels.
    pub fn has_labels(self, labels: &Value) -> bool {
        labels
            .as_object()
            .is_some_and(|labels| labels.iter().all(|(key, value)| self.label(key) == value.as_str()))
    }

    /// `kind namespace/name`, for messages.
    pub fn told(self) -> String {
        format!("{} {}/{}", self.kind(), self.namespace(), self.name())
    }

    /// The containers of its pod template, also of a CronJob's.
    pub fn containers(self) -> impl Iterator<Item = &'o Value> {
        let template = if self.kind() == "CronJob" {
            "/spec/jobTemplate/spec/template/spec/containers"
        } else {
            "/spec/template/spec/containers"
        };
        self.0.pointer(template).and_then(Value::as_array).into_iter().flatten()
    }
}

impl Objects {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Object<'_>> {
        self.0.iter().map(Object)
    }

    /// Those of one kind of a group.
    pub fn of<'o>(&'o self, group: &'o str, kind: &'o str) -> impl Iterator<Item = Object<'o>> {
        self.iter()
            .filter(move |object| object.group() == group && object.kind() == kind)
    }

    /// A namespaced object of the core group.
    fn core(&self, kind: &str, namespace: &str, name: &str) -> Option<Object<'_>> {
        self.iter().find(|object| {
            object.group().is_empty()
                && object.kind() == kind
                && object.namespace() == namespace
                && object.name() == name
        })
    }

    /// A Secret.
    pub fn secret(&self, namespace: &str, name: &str) -> Option<Object<'_>> {
        self.core("Secret", namespace, name)
    }

    /// The environment of a container, with what ConfigMaps say, and the variables that could not be read.
    pub fn environment(&self, container: &Value, namespace: &str) -> (BTreeMap<String, String>, Vec<String>) {
        let mut found = BTreeMap::new();
        let mut unread = Vec::new();
        let list = |key: &str| container.get(key).and_then(Value::as_array).into_iter().flatten();
        let text = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        for source in list("envFrom") {
            let Some(name) = text(source, "/configMapRef/name") else {
                unread.push("envFrom of a Secret".to_owned());
                continue;
            };
            let Some(map) = self.core("ConfigMap", namespace, &name) else {
                unread.push(format!("envFrom of ConfigMap {name}"));
                continue;
            };
            let data = map.0.get("data").and_then(Value::as_object).into_iter().flatten();
            found.extend(data.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))));
        }
        for variable in list("env") {
            let Some(name) = text(variable, "/name") else { continue };
            if let Some(value) = text(variable, "/value") {
                found.insert(name, value);
                continue;
            }
            let value = text(variable, "/valueFrom/configMapKeyRef/name").and_then(|map| {
                let key = text(variable, "/valueFrom/configMapKeyRef/key")?;
                self.core("ConfigMap", namespace, &map)?
                    .0
                    .pointer("/data")?
                    .get(&key)?
                    .as_str()
                    .map(str::to_owned)
            });
            match value {
                Some(value) => drop(found.insert(name, value)),
                None if variable.get("valueFrom").is_some() => unread.push(name),
                None => {}
            }
        }
        (found, unread)
    }
}

/// The flags of a container: `--name=value`, `--name value` (one word or two), `--name` alone (`true`).
pub fn flags(container: &Value) -> BTreeMap<String, String> {
    let words = ["command", "args"]
        .into_iter()
        .filter_map(|key| container.get(key)?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .map(str::trim);
    let mut found = BTreeMap::new();
    let mut open: Option<String> = None;
    for word in words {
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            if let Some(name) = open.take() {
                found.insert(name, unquoted(word));
            }
            continue;
        };
        if let Some(name) = open.take() {
            found.insert(name, "true".to_owned());
        }
        match flag.split_once(|part: char| part == '=' || part.is_whitespace()) {
            Some((name, value)) => drop(found.insert(name.to_owned(), unquoted(value))),
            None => open = Some(flag.to_owned()),
        }
    }
    if let Some(name) = open {
        found.insert(name, "true".to_owned());
    }
    found
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches(['"', '\'']).to_owned()
}
